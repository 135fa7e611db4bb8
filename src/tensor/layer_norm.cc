// src/tensor/layer_norm.cc: rows less their mean, divided by their deviation.
#include <attn/autograd.h>

#include "kernels/rows/target.h"
#include "tensor/normalize.h"

namespace attn {
namespace {

/// With z = (x - mean) / sqrt(var + eps) and g = dy * weight: dx = (g - mean g - z mean(g z)) / sqrt(var + eps), dweight = sum dy z.
Gradients gradients(const Backward& at, const Dims& normalized, double eps) {
  const Tensor x = widen(at.saved(0)), weight = at.saved(1), dy = widen(at.grad());
  Dims dims;
  for (int d = -normalized.size(); d < 0; ++d) dims.push_back(d);
  const Tensor inverse = 1 / sqrt(var(x, dims, /*unbiased=*/false, /*keepdim=*/true) + eps);
  const Tensor z = (x - mean(x, dims, true)) * inverse;
  const Tensor g = weight.defined() ? dy * widen(weight) : dy;
  return {(g - mean(g, dims, true) - z * mean(g * z, dims, true)) * inverse, dy * z, dy};
}

/// The same bits in one pass over the rows, without a graph.
Gradients gradients_by_rows(const Backward& at, const Dims& normalized, double eps) {
  const Tensor x = widened(at.saved(0)).contiguous(), dy = widened(at.grad()).contiguous(), weight = affine("layer_norm", "weight", at.saved(1), normalized, x.dtype());
  const Tensor dx = empty(x.sizes(), x.dtype()), dyz = at.needs(1) ? empty(x.sizes(), x.dtype()) : Tensor();
  const std::int64_t n = normalized.product(), rows = n == 0 ? 0 : x.numel() / n;
  const auto& table = kernels::row_kernels();
  const std::int64_t bytes = n * static_cast<std::int64_t>(size_of(x.dtype()));
  parallel_rows(rows, n, [&](std::int64_t row) {
    const auto at_row = [&](const Tensor& t) { return t.defined() ? static_cast<char*>(t.data()) + row * bytes : nullptr; };
    table.layer_norm_gradient_row({.element = element_of(x.dtype()), .n = n, .eps = eps, .x = at_row(x), .dy = at_row(dy),
                                   .weight = data_or_null(weight), .dx = at_row(dx), .dy_z = at_row(dyz)});
  });
  return {dx, dyz, dy};
}

}  // namespace

Tensor layer_norm(const Tensor& x, Dims normalized_shape, const Tensor& weight, const Tensor& bias, double eps, Tensor out) {
  check_floating_point("layer_norm", x);
  check_normalized("layer_norm", x, normalized_shape);
  const Tensor wide = widened(x).contiguous();
  const Tensor w = affine("layer_norm", "weight", weight, normalized_shape, wide.dtype()), b = affine("layer_norm", "bias", bias, normalized_shape, wide.dtype());
  const std::int64_t n = normalized_shape.product();
  const auto element = element_of(wide.dtype());
  const auto& table = kernels::row_kernels();
  const auto run = goes_to_memory(wide) ? table.layer_norm_row_to_memory : table.layer_norm_row;
  const Tensor y = normalized("layer_norm", x, wide, n, {w, b}, out,
                              [&](const void* from, void* to) { run(element, from, data_or_null(w), data_or_null(b), eps, to, n); });
  if (!wants_grad(x) && !wants_grad(weight) && !wants_grad(bias)) return y;
  record({"NativeLayerNormBackward0", {x, weight, bias}, {x, weight}}, {y}, [normalized_shape, eps](const Backward& at) {
    return grad_enabled() ? gradients(at, normalized_shape, eps) : gradients_by_rows(at, normalized_shape, eps);
  });
  return y;
}

}  // namespace attn
