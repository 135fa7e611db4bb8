// src/tensor/rms_norm.cc: divides each row by the root of the mean of its squares.
#include <attn/autograd.h>

#include "tensor/defined.h"
#include "tensor/normalize.h"

#include <limits>

namespace attn {
namespace {

/// Computes, with r = 1 / sqrt(mean x^2 + eps), z = x r and g = dy w: dx = (g - z mean(g z)) r, dw = sum dy z.
Gradients rms_norm_gradients(const Backward& at, const Dims& normalized, double eps) {
  const Tensor x = widen(at.saved(0)), weight = at.saved(1), dy = widen(at.grad());
  Dims dims;
  for (int d = -normalized.size(); d < 0; ++d) dims.push_back(d);
  const Tensor r = 1 / sqrt(mean(x * x, dims, /*keepdim=*/true) + eps), z = x * r;
  const Tensor g = weight.defined() ? dy * widen(weight) : dy;
  return {(g - z * mean(g * z, dims, true)) * r, dy * z};
}

}  // namespace

Tensor rms_norm(const Tensor& x, Dims normalized_shape, const Tensor& weight, std::optional<double> eps, Tensor out) {
  check_defined("rms_norm", "x", x);
  check_floating_point("rms_norm", x);
  check_normalized("rms_norm", x, normalized_shape);
  if (eps) check_eps("rms_norm", *eps);
  const double added = eps.value_or(x.dtype() == Dtype::f64 ? std::numeric_limits<double>::epsilon()
                                                            : std::numeric_limits<float>::epsilon());
  const Dtype wide = compute_dtype(x.dtype());
  const Tensor w = affine("rms_norm", "weight", weight, normalized_shape, wide);
  const std::int64_t n = normalized_shape.product();
  const auto& table = kernels::row_kernels();
  const auto run = goes_to_memory(x) ? table.rms_norm_row_to_memory : table.rms_norm_row;
  const Tensor y = normalized("rms_norm", x, n, {w, Tensor()}, out, [&](const void* from, void* to) {
    run(row_element_of(wide), from, data_or_null(w), added, to, n);
  });
  if (!wants_grad(x) && !wants_grad(weight)) return y;
  record({"RmsNormBackward0", {x, weight}, {x, weight}}, {y}, [normalized_shape, added](const Backward& at) {
    return grad_enabled() ? rms_norm_gradients(at, normalized_shape, added)
                          : norm_gradients(at, normalized_shape, added, /*rms=*/true);
  });
  return y;
}

}  // namespace attn
