// tests/support/tutorial.cc: reads a tutorial's figures and compares computations with them.
#include "support/tutorial.h"

#include "runtime/format.h"

#include <algorithm>
#include <cmath>

namespace attn::testing {
namespace {

const std::map<std::string, std::string>& files() {
  static const std::map<std::string, std::string> names = {{"000", "full/000_48db75b0c9f9543f.json"},
                                                           {"001", "full/001_fb4a998c3173c846.json"},
                                                           {"002", "full/002_402849631d2f4adc.json"},
                                                           {"003", "full/003_7bb1704bda755eee.json"},
                                                           {"004", "full/004_125374e79cb4f354.json"}};
  return names;
}

double largest_of(const Tensor& x) {
  double largest = 0;
  for (const double value : x.to_vector())
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  return largest;
}

/// Decides by torch's rule whether numbers are printed as powers of ten.
bool is_scientific(const std::vector<double>& values) {
  double least = 0, most = 0;
  for (const double value : values) {
    if (!std::isfinite(value) || value == 0) continue;
    least = least == 0 ? std::abs(value) : std::min(least, std::abs(value));
    most = std::max(most, std::abs(value));
  }
  return least != 0 && (most / least > 1000 || most > 1e8 || least < 1e-4);
}

/// Returns the digits that the tutorial prints, for each step that prints some.
std::map<std::string, Tensor> printed_digits(const std::string& number) {
  std::map<std::string, Tensor> digits;
  if (number == "003") return digits;  // this tutorial prints no numbers
  for (const auto& step : golden(number + ".json").at("steps"))
    digits[step.at("name").get<std::string>()] =
        golden_tensor(step.at("values"), Dims(step.at("shape").get<std::vector<std::int64_t>>()), Dtype::f64);
  return digits;
}

void expect_digits(const Tutorial& tutorial, const std::string& name, const Tensor& ours, const Tensor& digits) {
  // One number of the first tutorial, -0.26264992, lies on the boundary between two printed values.
  const bool on_a_boundary = tutorial.number() == "000" && (name == "context_vector_2" || name == "self_attention");
  const bool breaks_off = digits.dim() == 2 && ours.dim() == 2 && digits.size(0) < ours.size(0);
  EXPECT_TRUE(prints_as(breaks_off ? ours.slice(0, 0, digits.size(0)) : ours, digits, on_a_boundary ? 5.2e-5 : 5e-5));
}

}  // namespace

Tutorial::Tutorial(const std::string& number) : number_(number) {
  for (const auto& step : golden(files().at(number)).at("steps")) {
    const std::string name = step.at("name").get<std::string>();
    names_.push_back(name);
    if (step.value("printed_in_tutorial", false)) printed_.push_back(name);
    values_[name] = golden_tensor(step);
  }
}

const Tensor& Tutorial::operator()(const std::string& name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) throw ValueError("tutorial " + number_ + " has no step " + name);
  return found->second;
}

void add_drawn(Steps& steps, const std::vector<std::pair<std::string, Tensor>>& drawn) {
  for (const auto& [name, value] : drawn) steps[name] = exact([value = value] { return value; });
}

std::size_t expect_every_step(const Tutorial& tutorial, const Steps& steps) {
  const std::map<std::string, Tensor> digits = printed_digits(tutorial.number());
  for (const std::string& name : tutorial.names()) {
    SCOPED_TRACE(tutorial.number() + " " + name);
    const auto step = steps.find(name);
    if (step == steps.end() || step->second.ways.empty()) {
      ADD_FAILURE() << "no computation for this step";
      continue;
    }
    const Tensor& expected = tutorial(name);
    const double largest = step->second.largest_term > 0 ? step->second.largest_term : largest_of(expected);
    for (std::size_t way = 0; way < step->second.ways.size(); ++way) {
      SCOPED_TRACE(runtime::format("way {}", way));
      Tensor ours;
      EXPECT_NO_THROW(ours = step->second.ways[way]().detach());
      if (!ours.defined()) continue;
      EXPECT_EQ(name_of(ours.dtype()), name_of(expected.dtype()));
      EXPECT_TRUE(step->second.exact ? bits_equal(ours, expected) : within(ours, expected, 2e-6 * largest));
      if (digits.contains(name)) expect_digits(tutorial, name, ours, digits.at(name));
    }
  }
  for (const auto& [name, step] : steps)
    EXPECT_NE(std::ranges::count(tutorial.names(), name), 0) << tutorial.number() << " has no step " << name;
  for (const auto& [name, value] : digits)
    EXPECT_NE(std::ranges::count(tutorial.names(), name), 0)
        << tutorial.number() << " prints " << name << ", which is not among its steps";
  return tutorial.names().size();
}

::testing::AssertionResult prints_as(const Tensor& ours, const Tensor& printed, double half_unit) {
  if (!(ours.sizes() == printed.sizes()))
    return ::testing::AssertionFailure() << "shape " << to_string(ours.sizes()) << " is not "
                                         << to_string(printed.sizes());
  const auto a = ours.to_vector(), b = printed.to_vector();
  const bool scientific = is_scientific(b);
  // Small numbers beside large ones are differences, so one rounding of the largest number is allowed.
  const double one_rounding = scientific ? 0x1p-24 * largest_of(printed) : 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double unit = scientific && b[i] != 0 ? std::pow(10.0, std::floor(std::log10(std::abs(b[i])))) : 1;
    const bool same = std::isfinite(b[i]) ? std::abs(a[i] - b[i]) <= half_unit * unit + one_rounding
                      : std::isnan(b[i])  ? std::isnan(a[i])
                                          : a[i] == b[i];
    if (!same)
      return ::testing::AssertionFailure()
             << runtime::format("element {}: {:.9g} does not print as {:.9g}", i, a[i], b[i]);
  }
  return ::testing::AssertionSuccess();
}

}  // namespace attn::testing
