// src/tensor/rms_norm.cc: rows divided by the root of the mean of their squares.
#include "kernels/rows/target.h"
#include "runtime/memory.h"
#include "tensor/rows.h"

#include <attn/autograd.h>

#include <cmath>
#include <limits>

namespace attn {
namespace {

/// x r w with r = 1 / sqrt(mean x^2 + eps); x and weight contiguous, of the compute type.
Tensor forward(const Tensor& x, const Tensor& weight, std::int64_t n, double eps) {
  const Tensor result = empty(x.sizes(), x.dtype());
  with_compute_type(x.dtype(), [&]<typename T>(Type<T>) {
    const T* w = weight.defined() ? weight.data<T>() : nullptr;
    parallel_rows(n == 0 ? 0 : x.numel() / n, n, [&](std::int64_t row) {
      const T* from = x.data<T>() + row * n;
      T* to = result.data<T>() + row * n;
      T squares;
      kernels::row_kernels().row(kernels::RowOp::sum_of_squares, element_of(x.dtype()), from, 1, &squares, 1, n);
      const T r = 1 / std::sqrt(squares / static_cast<T>(n) + static_cast<T>(eps));
      for (std::int64_t i = 0; i < n; ++i) to[i] = canonical_nan(w != nullptr ? from[i] * r * w[i] : from[i] * r);
    });
  });
  return result;
}

/// With z = x r and g = dy w: dx = (g - z mean(g z)) r, dw = sum dy z.
Gradients gradients(const Backward& at, const Dims& normalized, double eps) {
  const Tensor x = widen(at.saved(0)), weight = at.saved(1), dy = widen(at.grad());
  Dims dims;
  for (int d = -normalized.size(); d < 0; ++d) dims.push_back(d);
  const Tensor r = 1 / sqrt(mean(x * x, dims, /*keepdim=*/true) + eps), z = x * r;
  const Tensor g = weight.defined() ? dy * widen(weight) : dy;
  return {(g - z * mean(g * z, dims, true)) * r, dy * z};
}

}  // namespace

Tensor rms_norm(const Tensor& x, Dims normalized_shape, const Tensor& weight, std::optional<double> eps) {
  check_floating_point("rms_norm", x);
  check_normalized("rms_norm", x, normalized_shape);
  const double added = eps.value_or(x.dtype() == Dtype::f64 ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon());
  const Tensor wide = widened(x).contiguous();
  const Tensor y = forward(wide, affine("rms_norm", "weight", weight, normalized_shape, wide.dtype()), normalized_shape.product(), added).to(x.dtype());
  if (!wants_grad(x) && !wants_grad(weight)) return y;
  record({"RmsNormBackward0", {x, weight}, {x, weight}}, {y}, [normalized_shape, added](const Backward& at) { return gradients(at, normalized_shape, added); });
  return y;
}

}  // namespace attn
