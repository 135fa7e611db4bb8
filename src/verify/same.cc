// src/verify/same.cc: finds the first difference of two results.
#include "verify/same.h"

#include <attn/ops.h>

#include "runtime/format.h"

#include "verify/backward.h"

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

double rounding_of(Dtype dtype) { return dtype == Dtype::bf16 ? 0x1p-8 : 0x1p-11; }
/// The smallest normal number: below it the spacing of a dtype's numbers no longer shrinks with them.
double smallest_normal(Dtype dtype) { return dtype == Dtype::bf16 ? 0x1p-126 : 0x1p-14; }

}  // namespace

std::string bits_differ(const Result& ours, const Result& expected) {
  const Tensor x = ours.values.contiguous(), y = expected.values.contiguous();
  const std::size_t size = size_of(x.dtype());
  if (!(x.sizes() == y.sizes()) || x.dtype() != y.dtype())
    return runtime::format("{} has shape {}; it must be {}", ours.name, to_string(x.sizes()), to_string(y.sizes()));
  const char *a = static_cast<const char*>(x.data()), *b = static_cast<const char*>(y.data());
  const auto count = static_cast<std::size_t>(x.numel());
  if (count == 0 || std::memcmp(a, b, count * size) == 0) return {};
  std::size_t n = 0;
  while (std::memcmp(a + n * size, b + n * size, size) == 0) ++n;
  const auto at = static_cast<std::int64_t>(n);
  return runtime::format("{}{} is {:.9g}; it must be {:.9g}", ours.name, place(x.sizes(), at),
                         x.reshape({-1}).select(0, at).item(), y.reshape({-1}).select(0, at).item());
}

std::string is_far(const Result& ours, const Result& truth, Dtype dtype, double more) {
  const std::vector<double> x = ours.values.to_vector(), y = truth.values.to_vector();
  double largest = 0;
  for (const double value : y)
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  const double allowed = 4 * rounding_of(dtype) * std::max(largest, smallest_normal(dtype)) + more;
  for (std::size_t n = 0; n < x.size(); ++n) {
    const bool good =
        std::isfinite(y[n]) ? std::abs(x[n] - y[n]) <= allowed : x[n] == y[n] || (std::isnan(x[n]) && std::isnan(y[n]));
    if (!good)
      return runtime::format("{}{} is {:.9g}; it must be {:.9g} within {:.3g}", ours.name,
                             place(ours.values.sizes(), static_cast<std::int64_t>(n)), x[n], y[n], allowed);
  }
  return {};
}

std::vector<double> moved_by_rounding(const Case& wide, const Inputs& in, const Results& truth, Dtype dtype) {
  constexpr std::uint64_t draws = 8;  // with one draw, small tensors may by chance hardly move
  std::vector<double> moved(truth.size());
  for (std::uint64_t seed = 1; seed <= draws; ++seed) {
    Inputs other = in;
    const auto noise = [&](const Tensor& x, std::uint64_t n) {
      return integers(x.sizes(), Dtype::f32, 8 * seed + n, 2 * rounding_of(dtype));
    };
    std::uint64_t n = 0;
    for (Tensor Inputs::* x : {&Inputs::q, &Inputs::k, &Inputs::v, &Inputs::doutput})
      if ((in.*x).defined()) other.*x = add(in.*x, mul(in.*x, noise(in.*x, n++)));
    Results changed;
    if (wide.is_backward()) {
      const BackwardPlan plan{"ref", &kernels::gradient_reference()};
      const Tensor delta = sum(abs(mul(attention(in.q, in.k, in.v, in.options).output, in.doutput)), {-1});
      // The incoming gradient of the logsumexp is subtracted from delta.
      changed = gradients_by(&plan, other, mul(delta, noise(delta, n)));
    } else {
      changed = by_specification(wide, other);
    }
    for (std::size_t r = 0; r < truth.size(); ++r) {
      const std::vector<double> x = changed[r].values.to_vector(), y = truth[r].values.to_vector();
      for (std::size_t i = 0; i < y.size(); ++i)
        if (std::isfinite(x[i] - y[i])) moved[r] = std::max(moved[r], std::abs(x[i] - y[i]));
    }
  }
  return moved;
}

}  // namespace attn::cases
