// tests/support/golden.cc: reads golden figures and compares results with them.
#include "support/golden.h"

#include "support/places.h"

#include "runtime/format.h"

#include <cmath>
#include <fstream>
#include <limits>
#include <map>

namespace attn::testing {
namespace {

double number(const nlohmann::json& value) {
  if (value.is_boolean()) return value.get<bool>() ? 1.0 : 0.0;
  if (!value.is_string()) return value.get<double>();
  const std::string text = value.get<std::string>();
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  return text == "-inf" ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
}

void flatten(const nlohmann::json& values, std::vector<double>& floats, std::vector<std::int64_t>& integers) {
  if (values.is_array()) {
    for (const auto& value : values) flatten(value, floats, integers);
    return;
  }
  floats.push_back(number(values));
  integers.push_back(values.is_number_integer() ? values.get<std::int64_t>()
                     : values.is_boolean()      ? values.get<bool>()
                                                : 0);
}

double epsilon(Dtype dtype) {
  switch (dtype) {
    case Dtype::f64: return 0x1p-52;
    case Dtype::bf16: return 0x1p-7;
    case Dtype::f16: return 0x1p-10;
    default: return 0x1p-23;
  }
}

}  // namespace

const nlohmann::json& golden(std::string_view name) {
  static std::map<std::string, nlohmann::json, std::less<>> parsed;
  auto found = parsed.find(name);
  if (found == parsed.end()) {
    std::ifstream file(golden_path(name));
    if (!file) throw std::runtime_error("no golden file " + std::string(name));
    found = parsed.emplace(name, nlohmann::json::parse(file)).first;
  }
  return found->second;
}

Tensor golden_tensor(const nlohmann::json& values, const Dims& shape, Dtype dtype) {
  std::vector<double> floats;
  std::vector<std::int64_t> integers;
  flatten(values, floats, integers);
  if (is_integral(dtype)) return tensor<std::int64_t>(integers, shape).to(dtype);
  if (dtype == Dtype::f32) {  // f64 -> f32 of a 9-digit decimal gives the exact float
    return tensor<float>(std::vector<float>(floats.begin(), floats.end()), shape);
  }
  return tensor<double>(floats, shape).to(dtype);
}

Tensor golden_tensor(const nlohmann::json& entry) {
  return golden_tensor(entry.at("values"), Dims(entry.at("shape").get<std::vector<std::int64_t>>()),
                       dtype_from_name(entry.at("dtype").get<std::string>()));
}

::testing::AssertionResult bits_equal(const Tensor& ours, const Tensor& expected) {
  if (same_bits(ours, expected)) return ::testing::AssertionSuccess();
  if (!(ours.sizes() == expected.sizes()) || ours.dtype() != expected.dtype())
    return ::testing::AssertionFailure() << name_of(ours.dtype()) << " " << to_string(ours.sizes()) << " is not "
                                         << name_of(expected.dtype()) << " " << to_string(expected.sizes());
  const auto a = ours.to_vector(), b = expected.to_vector();
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool same =
        (std::isnan(a[i]) && std::isnan(b[i])) || (a[i] == b[i] && std::signbit(a[i]) == std::signbit(b[i]));
    if (!same)
      return ::testing::AssertionFailure()
             << runtime::format("element {} of {}: {:.17g} is not {:.17g}", i, to_string(ours.sizes()), a[i], b[i]);
  }
  return ::testing::AssertionFailure() << "the bits differ";
}

::testing::AssertionResult within(const Tensor& ours, const Tensor& expected, double atol) {
  if (!(ours.sizes() == expected.sizes()))
    return ::testing::AssertionFailure() << "shape " << to_string(ours.sizes()) << " is not "
                                         << to_string(expected.sizes());
  const auto a = ours.to_vector(), b = expected.to_vector();
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool same =
        std::isfinite(b[i]) ? std::abs(a[i] - b[i]) <= atol : (std::isnan(b[i]) ? std::isnan(a[i]) : a[i] == b[i]);
    if (!same)
      return ::testing::AssertionFailure()
             << runtime::format("element {} of {}: {:.9g} against {:.9g}, more than {:.3g} apart", i,
                                to_string(ours.sizes()), a[i], b[i], atol);
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult within_error_rule(const Tensor& ours, const Tensor& torch, double torch_error) {
  if (ours.dtype() != torch.dtype())
    return ::testing::AssertionFailure() << "dtype " << name_of(ours.dtype()) << " is not " << name_of(torch.dtype());
  double largest = 0;
  for (const double value : torch.to_vector())
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  return within(ours, torch, 3 * torch_error + 4 * epsilon(torch.dtype()) * largest);
}

}  // namespace attn::testing
