// src/tensor/layer_norm.cc: subtracts the mean of each row and divides by its standard deviation.
#include <attn/autograd.h>

#include "kernels/rows/target.h"
#include "tensor/defined.h"
#include "tensor/normalize.h"

namespace attn {
namespace {

/// Computes, with z = (x - mean) / sqrt(var + eps) and g = dy * weight: dx = (g - mean g - z mean(g z)) / sqrt(var +
/// eps), dweight = sum dy z.
Gradients layer_norm_gradients(const Backward& at, const Dims& normalized, double eps) {
  const Tensor x = widen(at.saved(0)), weight = at.saved(1), dy = widen(at.grad());
  Dims dims;
  for (int d = -normalized.size(); d < 0; ++d) dims.push_back(d);
  const Tensor inverse = 1 / sqrt(var(x, dims, /*unbiased=*/false, /*keepdim=*/true) + eps);
  const Tensor z = (x - mean(x, dims, true)) * inverse;
  const Tensor g = weight.defined() ? dy * widen(weight) : dy;
  return {(g - mean(g, dims, true) - z * mean(g * z, dims, true)) * inverse, dy * z, dy};
}

}  // namespace

Tensor layer_norm(const Tensor& x, Dims normalized_shape, const Tensor& weight, const Tensor& bias, double eps,
                  Tensor out) {
  check_defined("layer_norm", "x", x);
  check_floating_point("layer_norm", x);
  check_normalized("layer_norm", x, normalized_shape);
  check_eps("layer_norm", eps);
  const Dtype wide = compute_dtype(x.dtype());
  const Tensor w = affine("layer_norm", "weight", weight, normalized_shape, wide),
               b = affine("layer_norm", "bias", bias, normalized_shape, wide);
  const std::int64_t n = normalized_shape.product();
  const auto& table = kernels::row_kernels();
  const auto run = goes_to_memory(x) ? table.layer_norm_row_to_memory : table.layer_norm_row;
  const Tensor y = normalized("layer_norm", x, n, {w, b}, out, [&](const void* from, void* to) {
    run(row_element_of(wide), from, data_or_null(w), data_or_null(b), eps, to, n);
  });
  if (!wants_grad(x) && !wants_grad(weight) && !wants_grad(bias)) return y;
  record({"NativeLayerNormBackward0", {x, weight, bias}, {x, weight}}, {y},
         [normalized_shape, eps](const Backward& at) {
           return grad_enabled() ? layer_norm_gradients(at, normalized_shape, eps)
                                 : norm_gradients(at, normalized_shape, eps, /*rms=*/false);
         });
  return y;
}

}  // namespace attn
