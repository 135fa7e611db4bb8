// src/tensor/reduce.cc: computes sum, mean, variance and norm along any dims.
#include "kernels/rows/target.h"
#include "runtime/floating_point.h"
#include "runtime/parallel.h"
#include "runtime/shares.h"
#include "tensor/blocks.h"
#include "tensor/rows.h"

#include <cmath>

namespace attn {
namespace {

using kernels::RowOp;

/// Reduces n contiguous elements to one value; half floats are converted to f32, one block at a time.
template <typename T>
void reduce_row(RowOp op, const Tensor& x, std::int64_t first, std::int64_t n, T* y) {
  const auto& table = kernels::row_kernels();
  const char* const from = static_cast<const char*>(advance(x, first));
  if (x.dtype() == dtype_of<T>) return table.row(op, row_element_of(dtype_of<T>), from, 1, y, 1, n);
  if constexpr (std::is_same_v<T, float>) {
    constexpr std::int64_t block = 4096;  // the sums depend on this number (docs/numerics.md section 5)
    alignas(64) float wide[block];
    JoinedSums<float> sums;
    for (std::int64_t i = 0; i == 0 || i < n; i += block) {
      const std::int64_t count = std::min(block, n - i);
      float sum;
      read_halves(x.dtype(), from + 2 * i, wide, count);
      table.row(op, kernels::Element::f32, wide, 1, &sum, 1, count);
      sums.add(sum);
    }
    *y = canonical_nan(sums.total());
  }
}

/// Sums one long row; threads share its parts. Each part is a whole subtree of the fixed tree of sums, so the result
/// has the same bits.
template <typename T>
T sum_of_long_row(RowOp op, const Tensor& x, std::int64_t first, std::int64_t n) {
  constexpr std::int64_t part = 16 * 4096;
  std::vector<T> sums(static_cast<std::size_t>((n + part - 1) / part));
  runtime::parallel_for(static_cast<std::int64_t>(sums.size()), [&](std::int64_t i) {
    reduce_row(op, x, first + i * part, std::min(part, n - i * part), &sums[static_cast<std::size_t>(i)]);
  });
  JoinedSums<T> joined;
  const runtime::DefaultFloatingPoint floating_point;
  for (const T sum : sums) joined.add(sum);
  return canonical_nan(joined.total());
}

/// Returns whether the rows to reduce are adjacent columns of a matrix in memory.
bool are_columns(const Rows& rows) { return rows.stride != 1 && rows.x.dim() > 1 && rows.x.stride(-2) == 1; }

/// Sums many columns together, in parts that depend only on the shape. y has the type in which the sums are computed.
void sum_columns(const Rows& rows, const Tensor& y) {
  constexpr std::int64_t elements_a_part = 65536, least = 64;
  const std::int64_t columns = rows.x.size(-2),
                     step = std::max(least, elements_a_part / std::max<std::int64_t>(1, rows.n) / least * least);
  const std::int64_t parts = (columns + step - 1) / step;
  const auto element = rows.x.dtype() == Dtype::bf16 ? kernels::Element::bf16 : row_element_of(rows.x.dtype());
  runtime::parallel_for_neighbours(rows.count / columns * parts, [&](std::int64_t part) {
    const std::int64_t first = part / parts * columns + part % parts * step;
    kernels::row_kernels().sum_columns(element, advance(rows.x, rows.offset(first)), rows.stride, rows.n,
                                       advance(y, first), std::min(step, columns - part % parts * step));
  });
}

/// Computes one value for each row of a floating tensor (half floats as f32); the result has the sizes `sizes`.
Tensor reduce_rows(RowOp op, const Tensor& given, const Dims& reduced, const Dims& sizes) {
  constexpr std::int64_t long_row = 1 << 18;
  const auto& table = kernels::row_kernels();
  const Tensor result = empty(sizes, compute_dtype(given.dtype()));
  // columns of bf16 are summed as they are, without a converted copy
  if (op == RowOp::sum && given.dtype() == Dtype::bf16 && table.widen != nullptr) {
    const Rows rows(reduced_last(given.detach(), reduced));
    if (rows.count > 0 && are_columns(rows)) {
      sum_columns(rows, result);
      return result;
    }
  }
  // Half floats whose rows are contiguous are summed as they are, without a converted copy.
  const bool as_given =
      op != RowOp::max && given.is_contiguous() && (reduced.empty() || reduced[0] == given.dim() - reduced.size());
  const Tensor x = as_given ? given.detach() : widened(given);
  const Rows rows(reduced_last(x, reduced));
  const auto element = row_element_of(x.dtype());
  with_compute_type(x.dtype(), [&]<typename T>(Type<T>) {
    T* y = static_cast<T*>(result.data());
    if (rows.count == 0) return;
    if (op != RowOp::max && rows.stride == 1 && rows.n >= long_row) {
      for (std::int64_t row = 0; row < rows.count; ++row)
        y[row] = sum_of_long_row<T>(op, rows.x, rows.offset(row), rows.n);
    } else if (as_given) {
      parallel_rows(rows.count, rows.n,
                    [&](std::int64_t row) { reduce_row(op, rows.x, rows.offset(row), rows.n, y + row); });
    } else if (op == RowOp::sum && are_columns(rows)) {
      sum_columns(rows, result);
    } else {
      parallel_rows(rows.count, rows.n, [&](std::int64_t row) {
        table.row(op, element, rows.data<T>(row), rows.stride, y + row, 1, rows.n);
      });
    }
  });
  return result;
}

/// Sums integers and bool in i64, with wrap-around as in torch, without a converted copy.
Tensor sum_integers(const Tensor& x, const Dims& reduced, const Dims& sizes) {
  const Rows rows(reduced_last(x, reduced));
  const Tensor result = empty(sizes, Dtype::i64);
  with_type(x.dtype(), [&]<typename T>(Type<T>) {
    if constexpr (std::is_integral_v<T>)
      parallel_rows(rows.count, rows.n, [&](std::int64_t row) {
        const T* from = rows.data<T>(row);
        std::uint64_t total = 0;
        for (std::int64_t i = 0; i < rows.n; ++i) total += static_cast<std::uint64_t>(from[i * rows.stride]);
        result.data<std::int64_t>()[row] = static_cast<std::int64_t>(total);
      });
  });
  return result;
}

std::int64_t count_of(const Tensor& x, const Dims& reduced) {
  Dims sizes;
  for (const std::int64_t d : reduced) sizes.push_back(x.sizes()[static_cast<int>(d)]);
  return sizes.product();
}

/// Sets x = f(x) for each element of a contiguous f32 or f64 tensor.
template <typename F>
Tensor in_place(const Tensor& x, F f) {
  const runtime::DefaultFloatingPoint floating_point;
  const auto run = [&]<typename T>(T* data) {
    for (std::int64_t i = 0; i < x.numel(); ++i) data[i] = canonical_nan(static_cast<T>(f(data[i])));
  };
  x.dtype() == Dtype::f64 ? run(x.data<double>()) : run(x.data<float>());
  return x;
}

/// Computes |x|^p = e^(p log |x|) in f64 with the kernels' own functions, so that the bits are the same on every
/// machine.
Tensor power_of_absolute(const Tensor& x, double p) {
  const Tensor y = abs(x.detach().to(Dtype::f64)).contiguous();
  const auto& table = kernels::row_kernels();
  table.unary(kernels::Unary::log, kernels::Element::f64, y.data(), y.data(), y.numel());
  in_place(y, [p](double v) { return p * v; });
  table.unary(kernels::Unary::exp, kernels::Element::f64, y.data(), y.data(), y.numel());
  return y;
}

Tensor sign(const Tensor& x) { return gt(x, 0).to(x.dtype()) - lt(x, 0).to(x.dtype()); }

/// Computes d |x|_p / dx. `y` is the norm, broadcast to every element. The slope is 0 where the norm is 0, as in torch.
Tensor norm_slope(double p, const Tensor& x, const Tensor& y, const Dims& reduced) {
  if (p == 0) return zeros_like(x);
  if (p == 1) return sign(x);
  if (p == 2) return masked_fill(x / y, eq(y, 0), 0);
  if (std::isinf(p)) {  // elements with the largest (or smallest) magnitude share the gradient
    const Tensor reaches = eq(abs(x), y).to(x.dtype());
    return sign(x) * (reaches / sum(reaches, reduced, /*keepdim=*/true));
  }
  // Masked before the power too, because the gradient of the power is infinite there.
  const Tensor none = logical_or(eq(x, 0), eq(y, 0));
  return masked_fill(sign(x) * pow(masked_fill(abs(x), none, 1) / masked_fill(y, none, 1), p - 1), none, 0);
}

/// Returns the norm in the type in which x is computed.
Tensor norm_of_rows(const Tensor& x, double p, const Dims& reduced, const Dims& sizes) {
  if (p == 2)
    return in_place(reduce_rows(RowOp::sum_of_squares, x, reduced, sizes), [](auto v) { return std::sqrt(v); });
  if (p == 1) return reduce_rows(RowOp::sum_of_absolutes, x, reduced, sizes);
  const Tensor wide = widened(x);
  if (p == 0) return reduce_rows(RowOp::sum, ne(wide, 0).to(wide.dtype()), reduced, sizes);
  if (std::isinf(p)) {
    if (count_of(x, reduced) == 0)
      throw ValueError("norm: x has shape " + to_string(x.sizes()) + "; an infinite norm needs at least one element");
    const Tensor magnitude = abs(wide);
    return p > 0 ? reduce_rows(RowOp::max, magnitude, reduced, sizes)
                 : abs(reduce_rows(RowOp::max, neg(magnitude), reduced, sizes));
  }
  return power_of_absolute(reduce_rows(RowOp::sum, power_of_absolute(wide, p), reduced, sizes), 1 / p);
}

}  // namespace

Tensor sum(const Tensor& x, Dims dims, bool keepdim, Tensor out) {
  const Dims reduced = reduced_dims("sum", dims, x.dim()), sizes = reduced_sizes(x.sizes(), reduced, keepdim);
  const bool floating = is_floating(x.dtype());
  const Tensor total = floating ? reduce_rows(RowOp::sum, x, reduced, sizes) : sum_integers(x.detach(), reduced, sizes);
  const Tensor y = deliver("sum", total, out, floating ? x.dtype() : Dtype::i64);
  return record(dims.empty() ? "SumBackward0" : "SumBackward1", y,
                wrt(x, [sizes = x.sizes(), reduced](auto& dy) { return spread(dy, sizes, reduced); }));
}

Tensor mean(const Tensor& x, Dims dims, bool keepdim, Tensor out) {
  check_floating_point("mean", x);
  const Dims reduced = reduced_dims("mean", dims, x.dim());
  const Tensor total = reduce_rows(RowOp::sum, x, reduced, reduced_sizes(x.sizes(), reduced, keepdim));
  const std::int64_t n = count_of(x, reduced);
  in_place(total, [n](auto v) { return v / static_cast<decltype(v)>(n); });
  const auto vjp = [n, sizes = x.sizes(), reduced](auto& dy) { return spread(dy / n, sizes, reduced); };
  return record(dims.empty() ? "MeanBackward0" : "MeanBackward1", deliver("mean", total, out, x.dtype()), wrt(x, vjp));
}

Tensor var(const Tensor& x, Dims dims, bool unbiased, bool keepdim, Tensor out) {
  check_floating_point("var", x);
  const Tensor wide = widened(x);
  const Dims reduced = reduced_dims("var", dims, x.dim());
  const Rows rows(reduced_last(wide, reduced));
  const Tensor result = empty(reduced_sizes(x.sizes(), reduced, keepdim), wide.dtype());
  with_compute_type(wide.dtype(), [&]<typename T>(Type<T>) {
    T* y = static_cast<T*>(result.data());
    const auto divisor = static_cast<T>(std::max<std::int64_t>(0, rows.n - (unbiased ? 1 : 0)));
    parallel_rows(rows.count, rows.n, [&](std::int64_t row) {
      T middle, deviations;
      kernels::row_kernels().moments_row(row_element_of(wide.dtype()), rows.data<T>(row), rows.stride, rows.n, &middle,
                                         &deviations);
      y[row] = canonical_nan(deviations / divisor);
    });
  });
  const auto vjp = [divisor = std::max<std::int64_t>(0, rows.n - (unbiased ? 1 : 0)), reduced](auto& dy, auto& x) {
    const Tensor from_mean = widen(x) - mean(widen(x), reduced, /*keepdim=*/true);
    return from_mean * spread(widen(dy) * (2.0 / static_cast<double>(divisor)), x.sizes(), reduced);
  };
  return record("VarBackward0", deliver("var", result, out, x.dtype()), wrt(x, vjp, x));
}

Tensor wide_norm(const Tensor& x, double p) { return norm_of_rows(x, p, reduced_dims("norm", {}, x.dim()), {}); }

Tensor norm(const Tensor& x, double p, Dims dims, bool keepdim) {
  check_floating_point("norm", x);
  const Dims reduced = reduced_dims("norm", dims, x.dim());
  const Tensor y = norm_of_rows(x, p, reduced, reduced_sizes(x.sizes(), reduced, keepdim)).to(x.dtype());
  const auto vjp = [p, reduced](auto& dy, auto& x, auto& y) {
    return widen(dy.reshape(reduced_sizes(x.sizes(), reduced, true))) *
           norm_slope(p, widen(x), spread(widen(y), x.sizes(), reduced), reduced);
  };
  return record("LinalgVectorNormBackward0", y, wrt(x, vjp, x, y));
}

}  // namespace attn
