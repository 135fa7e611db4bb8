// src/tensor/softmax.cc: softmax, log_softmax and cumsum: as many values as they read, row by row.
#include <attn/autograd.h>

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

/// y dy - y sum(y dy): in operations that have gradients, or with the same bits in one pass over the rows.
Tensor softmax_gradient(const Tensor& dy, const Tensor& y, int dim) {
  if (grad_enabled()) {
    const Tensor product = widen(dy) * widen(y);
    return product - widen(y) * sum(product, {dim}, /*keepdim=*/true);
  }
  const Tensor wide = widened(y), dx = empty(y.sizes(), wide.dtype());
  const Rows up(moved_last(widened(dy), dim)), from(moved_last(wide, dim)), to(moved_last(dx, dim));
  const auto element = element_of(wide.dtype());
  with_compute_type(wide.dtype(), [&]<typename T>(Type<T>) {
    parallel_rows(from.count, from.n, [&](std::int64_t row) {
      const T *dy_row = up.data<T>(row), *y_row = from.data<T>(row);
      T* x_row = to.data<T>(row);
      for (std::int64_t i = 0; i < from.n; ++i) x_row[i * to.stride] = dy_row[i * up.stride] * y_row[i * from.stride];
      T total;
      kernels::row_kernels().row(kernels::RowOp::sum, element, x_row, to.stride, &total, 1, from.n);
      for (std::int64_t i = 0; i < from.n; ++i) x_row[i * to.stride] = canonical_nan(x_row[i * to.stride] - y_row[i * from.stride] * total);
    });
  });
  return dx;
}

}  // namespace

Tensor softmax(const Tensor& x, int dim, Tensor out) {
  const Tensor y = softmax_like("softmax", kernels::RowOp::softmax, x, dim, out);
  return record("SoftmaxBackward0", y, wrt(x, [dim](auto& dy, auto& y) { return softmax_gradient(dy, y, dim); }, y));
}

Tensor log_softmax(const Tensor& x, int dim, Tensor out) {
  const Tensor y = softmax_like("log_softmax", kernels::RowOp::log_softmax, x, dim, out);
  return record("LogSoftmaxBackward0", y, wrt(x, [dim](auto& dy, auto& y) {
    return widen(dy) - exp(widen(y)) * sum(widen(dy), {dim}, /*keepdim=*/true);
  }, y));
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
