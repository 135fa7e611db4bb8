// src/tensor/softmax.cc: softmax, log_softmax, layer_norm and cumsum: as many values as they read, row by row.
#include "kernels/rows/target.h"
#include "tensor/rows.h"

#include <type_traits>

namespace attn {
namespace {

/// The result's memory with `dim` moved last, so that input and result are walked alike.
Tensor moved_last(const Tensor& x, int dim) { return x.dim() == 0 ? x.reshape({1}) : x.transpose(dim, -1); }

Tensor softmax_like(const char* function, kernels::RowOp op, const Tensor& x, int dim, const Tensor& out) {
  check_floating_point(function, x);
  if (x.dim() > 0 || (dim != 0 && dim != -1)) dim = wrap_dim(function, dim, x.dim());
  const Tensor wide = widened(x), result = empty(x.sizes(), wide.dtype());
  const Rows from(moved_last(wide, dim)), to(moved_last(result, dim));
  const auto element = element_of(wide.dtype());
  const auto& table = kernels::row_kernels();
  with_compute_type(wide.dtype(), [&]<typename T>(Type<T>) {
    parallel_rows(from.count, from.n, [&](std::int64_t row) {
      table.row(op, element, from.data<T>(row), from.stride, to.data<T>(row), to.stride, from.n);
    });
  });
  return deliver(function, result, out, x.dtype());
}

/// weight or bias of layer_norm in the compute type, contiguous; undefined stays so.
Tensor affine(const char* name, const Tensor& given, const Dims& shape, Dtype dtype) {
  if (!given.defined()) return {};
  if (!(given.sizes() == shape))
    throw ShapeError("layer_norm: " + std::string(name) + " has shape " + to_string(given.sizes()) + "; it must be normalized_shape " + to_string(shape));
  return given.detach().to(dtype).contiguous();
}

/// With z = (x - mean) / sqrt(var + eps) and g = dy * weight: dx = (g - mean g - z mean(g z)) / sqrt(var + eps), dweight = sum dy z.
Gradients layer_norm_gradients(const Backward& at, int normalized, double eps) {
  const Tensor x = widen(at.saved(0)), weight = at.saved(1), dy = widen(at.grad());
  Dims dims;
  for (int d = -normalized; d < 0; ++d) dims.push_back(d);
  const Tensor inverse = 1 / sqrt(var(x, dims, /*unbiased=*/false, /*keepdim=*/true) + eps);
  const Tensor z = (x - mean(x, dims, true)) * inverse;
  Gradients gradients(3);
  if (at.needs(0)) {
    const Tensor g = weight.defined() ? dy * widen(weight) : dy;
    gradients[0] = (g - mean(g, dims, true) - z * mean(g * z, dims, true)) * inverse;
  }
  if (at.needs(1)) gradients[1] = dy * z;
  if (at.needs(2)) gradients[2] = dy;
  return gradients;
}

}  // namespace

Tensor softmax(const Tensor& x, int dim, Tensor out) {
  const Tensor y = softmax_like("softmax", kernels::RowOp::softmax, x, dim, out);
  return record("SoftmaxBackward0", y, wrt(x, [dim](auto& dy, auto& y) {
    const Tensor product = widen(dy) * widen(y);
    return product - widen(y) * sum(product, {dim}, /*keepdim=*/true);
  }, y));
}

Tensor log_softmax(const Tensor& x, int dim, Tensor out) {
  const Tensor y = softmax_like("log_softmax", kernels::RowOp::log_softmax, x, dim, out);
  return record("LogSoftmaxBackward0", y, wrt(x, [dim](auto& dy, auto& y) {
    return widen(dy) - exp(widen(y)) * sum(widen(dy), {dim}, /*keepdim=*/true);
  }, y));
}

Tensor layer_norm(const Tensor& x, Dims normalized_shape, const Tensor& weight, const Tensor& bias, double eps) {
  check_floating_point("layer_norm", x);
  const int first = x.dim() - normalized_shape.size();
  bool fits = first >= 0 && !normalized_shape.empty();
  for (int d = 0; fits && d < normalized_shape.size(); ++d) fits = x.sizes()[first + d] == normalized_shape[d];
  if (!fits)
    throw ShapeError("layer_norm: normalized_shape " + to_string(normalized_shape) + " does not end the shape of x " + to_string(x.sizes()) +
                     "; its dims must be x's last ones");
  const Tensor wide = widened(x).contiguous(), result = empty(x.sizes(), wide.dtype());
  const Tensor w = affine("weight", weight, normalized_shape, wide.dtype()), b = affine("bias", bias, normalized_shape, wide.dtype());
  const std::int64_t n = normalized_shape.product(), rows = n == 0 ? 0 : x.numel() / n;
  with_compute_type(wide.dtype(), [&]<typename T>(Type<T>) {
    const T* from = static_cast<const T*>(wide.data());
    T* to = static_cast<T*>(result.data());
    parallel_rows(rows, n, [&](std::int64_t row) {
      kernels::row_kernels().layer_norm_row(element_of(wide.dtype()), from + row * n, w.defined() ? w.data() : nullptr,
                                          b.defined() ? b.data() : nullptr, eps, to + row * n, n);
    });
  });
  const Tensor y = result.to(x.dtype());
  if (!wants_grad(x) && !wants_grad(weight) && !wants_grad(bias)) return y;
  record({"NativeLayerNormBackward0", {x, weight, bias}, {x, weight}}, {y}, [normalized_shape, eps](const Backward& at) {
    return layer_norm_gradients(at, normalized_shape.size(), eps);
  });
  return y;
}

namespace {

/// The elements along `dim` from the last to the first: a view.
Tensor flip(const Tensor& x, int dim) {
  if (x.dim() == 0 || x.numel() == 0) return x;
  Dims strides = x.strides();
  void* last = advance(x, (x.sizes()[dim] - 1) * strides[dim]);
  strides[dim] = -strides[dim];
  return record_view("FlipBackward0", make_view(x, last, x.sizes(), strides), x, [dim](auto& dy) { return flip(dy, dim); });
}

}  // namespace

/// One chain of additions along the dim; integers and bool in i64, half floats in f32, each sum rounded once.
Tensor cumsum(const Tensor& x, int dim) {
  if (x.dim() > 0 || (dim != 0 && dim != -1)) dim = wrap_dim("cumsum", dim, x.dim());
  const Dtype dtype = is_floating(x.dtype()) ? x.dtype() : Dtype::i64;
  const Tensor wide = x.detach().to(compute_dtype(dtype)), result = empty(x.sizes(), wide.dtype());
  const Rows from(moved_last(wide, dim)), to(moved_last(result, dim));
  const auto run = [&]<typename T>(Type<T>) {
    using Total = std::conditional_t<std::is_integral_v<T>, std::uint64_t, T>;
    parallel_rows(from.count, from.n, [&](std::int64_t row) {
      Total total = 0;
      const T* x_row = from.data<T>(row);
      T* y_row = to.data<T>(row);
      for (std::int64_t i = 0; i < from.n; ++i) {
        total += static_cast<Total>(x_row[i * from.stride]);
        y_row[i * to.stride] = static_cast<T>(total);
      }
    });
  };
  wide.dtype() == Dtype::i64 ? run(Type<std::int64_t>{}) : with_compute_type(wide.dtype(), run);
  return record("CumsumBackward0", result.to(dtype), wrt(x, [dim](auto& dy) { return flip(cumsum(flip(widen(dy), dim), dim), dim); }));
}

}  // namespace attn
