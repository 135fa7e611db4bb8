// src/tensor/softmax.cc: computes softmax, log_softmax and cumsum, row by row.
#include <attn/autograd.h>

#include "runtime/shares.h"
#include "tensor/binary.h"
#include "tensor/rows.h"

#include <type_traits>

namespace attn {
namespace {

/// The number of adjacent rows whose gradients are computed together.
constexpr std::int64_t gradient_columns = 256;

/// Moves `dim` last and keeps the order of the others, so that input and result are read in the same order.
Tensor moved_last(const Tensor& x, int dim) {
  if (x.dim() == 0) return x.reshape({1});
  if (dim < 0) dim += x.dim();
  Dims order;
  for (int d = 0; d < x.dim(); ++d)
    if (d != dim) order.push_back(d);
  order.push_back(dim);
  return x.permute(order);
}

/// Computes adjacent rows together, in parts that depend only on the shape. Such rows lie one element apart in x and in
/// the result: they are columns in memory.
template <typename T>
void softmax_columns(kernels::RowOp op, const Rows& from, const Rows& to) {
  constexpr std::int64_t elements_a_part = 32768, least = 16;
  const std::int64_t columns = from.x.size(-2),
                     step = std::max(least, elements_a_part / std::max<std::int64_t>(1, from.n) / least * least);
  const std::int64_t parts = (columns + step - 1) / step;
  runtime::parallel_for_neighbours(from.count / columns * parts, [&](std::int64_t part) {
    const std::int64_t first = part / parts * columns + part % parts * step,
                       count = std::min(step, columns - part % parts * step);
    kernels::row_kernels().softmax_columns(op, row_element_of(dtype_of<T>), from.data<T>(first), from.stride,
                                           to.data<T>(first), to.stride, from.n, count);
  });
}

/// Computes the rows along `dim`. `result` has x's shape and dtype (f32 or f64) and may be x.
void softmax_rows(kernels::RowOp op, const Tensor& x, const Tensor& result, int dim) {
  const Rows from(moved_last(x, dim)), to(moved_last(result, dim));
  if (from.count == 0 || from.n == 0) return;
  const auto element = row_element_of(x.dtype());
  const auto& table = kernels::row_kernels();
  const bool side_by_side = from.x.dim() > 1 && from.stride != 1 && from.x.stride(-2) == 1 && to.x.stride(-2) == 1;
  with_compute_type(x.dtype(), [&]<typename T>(Type<T>) {
    if (side_by_side) return softmax_columns<T>(op, from, to);
    const bool to_memory = from.count * from.n * static_cast<std::int64_t>(sizeof(T)) >= streamed_bytes;
    const auto run = to_memory ? table.row_to_memory : table.row;
    parallel_rows(from.count, from.n, [&](std::int64_t row) {
      run(op, element, from.data<T>(row), from.stride, to.data<T>(row), to.stride, from.n);
    });
  });
}

Tensor softmax_like(const char* function, kernels::RowOp op, const Tensor& x, int dim, const Tensor& out) {
  check_floating_point(function, x);
  if (x.dim() > 0 || (dim != 0 && dim != -1)) dim = wrap_dim(function, dim, x.dim());
  if (x.dtype() == compute_dtype(x.dtype()))
    return compute_into(function, out, x.sizes(), x.dtype(), {&x},
                        [&](const Tensor& result) { softmax_rows(op, x.detach(), result, dim); });
  const Tensor wide = widened(x);
  softmax_rows(op, wide, wide, dim);
  return deliver(function, wide, out, x.dtype());
}

// These functions compute parts of the gradients for contiguous elements.
template <typename T>
void multiply_into(T* y, const T* a, const T* b, std::int64_t n) {
  ATTN_INDEPENDENT
  for (std::int64_t i = 0; i < n; ++i) y[i] = a[i] * b[i];
}
/// Computes y = a - b total, with one total for all elements or one for each.
template <typename T, typename Total>
void subtract_into(T* y, const T* a, const T* b, Total total, std::int64_t n) {
  ATTN_INDEPENDENT
  for (std::int64_t i = 0; i < n; ++i) y[i] = canonical_nan(a[i] - b[i] * total(i));
}

/// Computes the gradients of `gradient_of_rows` from the pointers on: for `count` adjacent rows, or for one row of n
/// contiguous elements.
template <typename T>
struct GradientPart {
  kernels::RowOp op;
  std::int64_t n, stride;
  const T *dy, *y;
  T* dx;

  void prepare(std::int64_t at, std::int64_t neighbours) const {
    if (op == kernels::RowOp::softmax) multiply_into(dx + at, dy + at, y + at, neighbours);
    else kernels::row_kernels().unary(kernels::Unary::exp, row_element_of(dtype_of<T>), y + at, dx + at, neighbours);
  }
  template <typename Total>
  void finish(std::int64_t at, std::int64_t neighbours, Total total) const {
    op == kernels::RowOp::softmax ? subtract_into(dx + at, dx + at, y + at, total, neighbours)
                                  : subtract_into(dx + at, dy + at, dx + at, total, neighbours);
  }
  const T* summands() const { return op == kernels::RowOp::softmax ? dx : dy; }

  void row() const {
    prepare(0, n);
    T total;
    kernels::row_kernels().row(kernels::RowOp::sum, row_element_of(dtype_of<T>), summands(), 1, &total, 1, n);
    finish(0, n, [total](std::int64_t) { return total; });
  }
  void columns(std::int64_t count) const {
    alignas(64) T totals[gradient_columns];
    for (std::int64_t i = 0; i < n; ++i) prepare(i * stride, count);
    kernels::row_kernels().sum_columns(row_element_of(dtype_of<T>), summands(), stride, n, totals, count);
    for (std::int64_t i = 0; i < n; ++i) finish(i * stride, count, [&](std::int64_t c) { return totals[c]; });
  }
};

/// Computes the gradient of softmax, y dy - y sum(y dy), or of log_softmax, dy - e^y sum(dy), in the type of the
/// computation and without gradient history.
Tensor gradient_of_rows(kernels::RowOp op, const Tensor& given_dy, const Tensor& given_y, int dim) {
  const Tensor y = widened(given_y).contiguous(), dy = widened(given_dy).contiguous(), dx = empty(y.sizes(), y.dtype());
  if (dx.numel() == 0) return dx;
  const Rows up(moved_last(dy, dim)), from(moved_last(y, dim)), to(moved_last(dx, dim));
  with_compute_type(y.dtype(), [&]<typename T>(Type<T>) {
    const auto part_at = [&](std::int64_t row) {
      return GradientPart<T>{op, from.n, from.stride, up.data<T>(row), from.data<T>(row), to.data<T>(row)};
    };
    if (from.stride == 1 || from.n == 1)
      return parallel_rows(from.count, from.n, [&](std::int64_t row) { part_at(row).row(); });
    // rows that lie side by side: `stride` is the product of the dims after `dim`
    const std::int64_t columns = from.stride, parts = (columns + gradient_columns - 1) / gradient_columns;
    runtime::parallel_for_neighbours(from.count / columns * parts, [&](std::int64_t part) {
      const std::int64_t first = part / parts * columns + part % parts * gradient_columns;
      part_at(first).columns(std::min(gradient_columns, columns - part % parts * gradient_columns));
    });
  });
  return dx;
}

/// Compute the gradients of softmax and log_softmax: in tensor operations that have gradients if gradients are
/// recorded, otherwise in one pass over the rows, with the same bits.
Tensor softmax_gradient(const Tensor& dy, const Tensor& y, int dim) {
  if (!grad_enabled()) return gradient_of_rows(kernels::RowOp::softmax, dy, y, dim);
  const Tensor product = widen(dy) * widen(y);
  return product - widen(y) * sum(product, {dim}, /*keepdim=*/true);
}
Tensor log_softmax_gradient(const Tensor& dy, const Tensor& y, int dim) {
  if (!grad_enabled()) return gradient_of_rows(kernels::RowOp::log_softmax, dy, y, dim);
  return widen(dy) - exp(widen(y)) * sum(widen(dy), {dim}, /*keepdim=*/true);
}

}  // namespace

Tensor softmax(const Tensor& x, int dim, Tensor out) {
  const Tensor y = softmax_like("softmax", kernels::RowOp::softmax, x, dim, out);
  return record("SoftmaxBackward0", y, wrt(x, [dim](auto& dy, auto& y) { return softmax_gradient(dy, y, dim); }, y));
}

Tensor log_softmax(const Tensor& x, int dim, Tensor out) {
  const Tensor y = softmax_like("log_softmax", kernels::RowOp::log_softmax, x, dim, out);
  return record("LogSoftmaxBackward0", y,
                wrt(x, [dim](auto& dy, auto& y) { return log_softmax_gradient(dy, y, dim); }, y));
}

namespace {

/// Returns a view of the elements along `dim` from the last to the first.
Tensor flip(const Tensor& x, int dim) {
  if (x.dim() == 0 || x.numel() == 0) return x;
  Dims strides = x.strides();
  void* last = advance(x, (x.sizes()[dim] - 1) * strides[dim]);
  strides[dim] = -strides[dim];
  return record_view("FlipBackward0", make_view(x, last, x.sizes(), strides), x,
                     [dim](auto& dy) { return flip(dy, dim); });
}

}  // namespace

/// Adds along the dim, one element after another. Integers and bool are summed in i64, half floats in f32; each sum is
/// rounded once.
Tensor cumsum(const Tensor& x, int dim) {
  if (x.dim() > 0 || (dim != 0 && dim != -1)) dim = wrap_dim("cumsum", dim, x.dim());
  const Dtype dtype = is_floating(x.dtype()) ? x.dtype() : Dtype::i64;
  const Tensor result = empty(x.sizes(), compute_dtype(dtype));
  const Rows from(moved_last(x.detach(), dim)), to(moved_last(result, dim));
  with_type(x.dtype(), [&]<typename S>(Type<S>) {
    using T = std::conditional_t<std::is_integral_v<S>, std::int64_t, Compute<S>>;
    using Total = std::conditional_t<std::is_integral_v<S>, std::uint64_t, T>;
    // a tensor without elements may have too many rows for a loop
    parallel_rows(from.n == 0 ? 0 : from.count, from.n, [&](std::int64_t row) {
      Total total = 0;
      const S* x_row = from.data<S>(row);
      T* y_row = to.data<T>(row);
      for (std::int64_t i = 0; i < from.n; ++i) {
        total += static_cast<Total>(widen(x_row[i * from.stride]));
        y_row[i * to.stride] = static_cast<T>(total);
      }
    });
  });
  return record("CumsumBackward0", result.to(dtype),
                wrt(x, [dim](auto& dy) { return flip(cumsum(flip(widen(dy), dim), dim), dim); }));
}

}  // namespace attn
