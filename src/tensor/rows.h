// src/tensor/rows.h: declares what operations along dims share: a tensor arranged as rows, the division among threads,
// the memory of the result.
#pragma once
#include <attn/ops.h>

#include "kernels/rows/target.h"
#include "runtime/shares.h"
#include "tensor/build.h"
#include "tensor/element.h"

#include <algorithm>
#include <limits>

namespace attn {

/// Returns `x` without gradient history, half floats widened to f32.
inline Tensor widened(const Tensor& x) { return x.detach().to(compute_dtype(x.dtype())); }
inline kernels::Element row_element_of(Dtype dtype) {
  return dtype == Dtype::f64 ? kernels::Element::f64 : kernels::Element::f32;
}

/// Calls function(Type<T>{}) with float or double.
template <typename F>
decltype(auto) with_compute_type(Dtype dtype, F&& function) {
  return dtype == Dtype::f64 ? function(Type<double>{}) : function(Type<float>{});
}
/// Returns x, but replaces every NaN by the canonical NaN, because 0 / 0 sets the sign bit on some processors.
template <typename T>
T canonical_nan(T x) {
  return x != x ? std::numeric_limits<T>::quiet_NaN() : x;
}

/// Returns the dims to reduce, each once and in ascending order; negative numbers in `dims` count from the end, and an
/// empty `dims` means all dims.
Dims reduced_dims(const char* function, const Dims& dims, int rank);
/// Returns x's sizes with the reduced dims removed, or 1 if `keepdim`.
Dims reduced_sizes(const Dims& sizes, const Dims& reduced, bool keepdim);

/// Broadcasts y, which has one value for each row and the shape of `reduced_sizes`, to the `sizes` before the
/// reduction. Returns a view.
Tensor spread(const Tensor& y, const Dims& sizes, const Dims& reduced);

/// A tensor as rows along its last dim: row r starts `offset(r)` elements after x.data().
struct Rows {
  Tensor x;  // [..., n]
  std::int64_t count = 0, n = 0, stride = 0;

  explicit Rows(const Tensor& tensor);
  std::int64_t offset(std::int64_t row) const;
  template <typename T>
  T* data(std::int64_t row) const {
    return static_cast<T*>(x.data()) + offset(row);
  }
};
/// Returns `x` with the reduced dims joined into one last dim; a view if the strides allow it.
Tensor reduced_last(const Tensor& x, const Dims& reduced);

/// Calls work(row) for each of `rows` rows of n elements. The division into parts depends only on these two numbers.
template <typename F>
void parallel_rows(std::int64_t rows, std::int64_t n, F&& work) {
  constexpr std::int64_t elements_a_part = 16384;
  const std::int64_t step = std::max<std::int64_t>(1, elements_a_part / std::max<std::int64_t>(1, n));
  runtime::parallel_for_neighbours((rows + step - 1) / step, [&](std::int64_t part) {
    for (std::int64_t row = part * step; row < std::min(rows, (part + 1) * step); ++row) work(row);
  });
}

/// Joins the sums of adjacent blocks in the order of docs/numerics.md section 5.
template <typename T>
class JoinedSums {
 public:
  void add(T sum) {
    for (std::int64_t bit = count_++; (bit & 1) != 0; bit >>= 1) sum = waiting_[--depth_] + sum;
    waiting_[depth_++] = sum;
  }
  T total() {
    T sum = waiting_[--depth_];
    while (depth_ > 0) sum = waiting_[--depth_] + sum;
    return sum;
  }

 private:
  T waiting_[48];  // sums of 2^level blocks, of which each level has at most one, like the bits of a binary counter
  int depth_ = 0;
  std::int64_t count_ = 0;
};

/// Results of this many bytes or more are no longer in a cache at their next use.
constexpr std::int64_t streamed_bytes = std::int64_t{16} << 20;

/// Returns `computed` as the result of `function`: unchanged, rounded to `dtype`, or copied to `out`.
Tensor deliver(const char* function, const Tensor& computed, const Tensor& out, Dtype dtype);

/// Throws ShapeError unless `normalized` equals the last dims of x, at least one.
void check_normalized(const char* function, const Tensor& x, const Dims& normalized);
/// Returns the weight or bias of a norm in the type of the computation, contiguous; undefined stays undefined.
Tensor affine(const char* function, const char* name, const Tensor& given, const Dims& normalized, Dtype dtype);

/// Returns the norm of all elements of x in the type of the computation, without gradient history.
Tensor wide_norm(const Tensor& x, double p);

/// Throws DtypeError unless x is a floating tensor.
void check_floating_point(const char* function, const Tensor& x);

}  // namespace attn
