// src/verify/same.cc: where two results differ first.
#include "verify/same.h"

#include <attn/ops.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace attn::cases {
namespace {

std::string place(const Dims& sizes, std::int64_t at) {
  Dims index = sizes;
  for (int d = sizes.size() - 1; d >= 0; --d) {
    index[d] = at % sizes[d];
    at /= sizes[d];
  }
  return to_string(index);
}

}  // namespace

std::string bits_differ(const Result& ours, const Result& expected) {
  const Tensor x = ours.values.contiguous(), y = expected.values.contiguous();
  const std::size_t size = size_of(x.dtype());
  if (!(x.sizes() == y.sizes()) || x.dtype() != y.dtype()) return fmt::format("{} has shape {}; it must be {}", ours.name, to_string(x.sizes()), to_string(y.sizes()));
  const char *a = static_cast<const char*>(x.data()), *b = static_cast<const char*>(y.data());
  const auto count = static_cast<std::size_t>(x.numel());
  if (count == 0 || std::memcmp(a, b, count * size) == 0) return {};
  std::size_t n = 0;
  while (std::memcmp(a + n * size, b + n * size, size) == 0) ++n;
  const auto at = static_cast<std::int64_t>(n);
  return fmt::format("{}{} is {:.9g}; it must be {:.9g}", ours.name, place(x.sizes(), at), x.reshape({-1}).select(0, at).item(), y.reshape({-1}).select(0, at).item());
}

std::string is_far(const Result& ours, const Result& truth, Dtype dtype) {
  const std::vector<double> x = ours.values.to_vector(), y = truth.values.to_vector();
  double largest = 0;
  for (const double value : y)
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  const double allowed = 4 * (dtype == Dtype::bf16 ? 0x1p-8 : 0x1p-11) * largest;
  for (std::size_t n = 0; n < x.size(); ++n) {
    const bool good = std::isfinite(y[n]) ? std::abs(x[n] - y[n]) <= allowed : x[n] == y[n] || (std::isnan(x[n]) && std::isnan(y[n]));
    if (!good) return fmt::format("{}{} is {:.9g}; it must be {:.9g} within {:.3g}", ours.name, place(ours.values.sizes(), static_cast<std::int64_t>(n)), x[n], y[n], allowed);
  }
  return {};
}

}  // namespace attn::cases
