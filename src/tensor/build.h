// src/tensor/build.h: what operations share when they make results: views, dim numbers, given memory, in-place rules.
#pragma once
#include "tensor/overlap.h"
#include "tensor/record.h"

namespace attn {

/// The tensor's memory seen with other sizes and strides, from `data` on; no history.
Tensor make_view(const Tensor& base, void* data, const Dims& sizes, const Dims& strides);
/// Pointer `elements` after the first of `tensor`.
void* advance(const Tensor& tensor, std::int64_t elements);

/// A dim number in 0 ... rank - 1 from one that may count from the end; ShapeError names `function`..
int wrap_dim(const char* function, int dim, int rank);

/// ValueError for a number that the dtype does not hold: NaN or one out of range of whole numbers, one beyond f32.
/// Halves round it to inf.
void check_fits(const char* function, Scalar value, Dtype dtype);
/// As full(), but what the dtype does not hold wraps around or becomes inf, as in arithmetic.
Tensor filled(const Dims& sizes, Scalar value, Dtype dtype);

/// As empty().
Tensor new_memory(const Dims& sizes, Dtype dtype);
/// The memory an operation writes: that of `out` after its shape and dtype are checked (its version goes up), else new.
Tensor result_memory(const char* function, const Tensor& out, const Dims& sizes, Dtype dtype);
/// `out`, which is defined, is checked and counts as changed.
void take_result_memory(const char* function, const Tensor& out, const Dims& sizes, Dtype dtype);
/// `source`, which broadcasts to `target`, converted into it. No checks, no history, no new version.
void copy_values(const Tensor& target, const Tensor& source);

/// ValueError when `x` overlaps itself, is a leaf that requires a gradient or a view of one, or when its change by
/// `other` would have to be recorded and cannot be. Before the change: history_of(name, x, wrt(x, ...), wrt(other,
/// ...)); after it: changed(x).
void check_in_place(const char* function, const Tensor& x, const Tensor& other = {});
/// The same where every element becomes the same number: it may overlap itself.
void check_overwrite(const char* function, const Tensor& x);
/// The history of x when `name` has given it values that do not depend on those it had.
History history_of_overwriting(const char* name, const Tensor& x);

}  // namespace attn
