// src/tensor/build.h: declares the helpers with which operations make results: views, dim numbers, memory from the
// caller, in-place rules.
#pragma once
#include "tensor/overlap.h"
#include "tensor/record.h"

namespace attn {

/// Returns a view of the tensor's memory with other sizes and strides that starts at `data`; it has no gradient
/// history.
Tensor make_view(const Tensor& base, void* data, const Dims& sizes, const Dims& strides);
/// Returns the pointer `elements` elements after the first of `tensor`.
void* advance(const Tensor& tensor, std::int64_t elements);

/// Returns a dim number in 0 ... rank - 1; a negative `dim` counts from the end. ShapeError names `function`.
int wrap_dim(const char* function, int dim, int rank);

/// Throws ValueError for a number that the dtype cannot hold: NaN or an out-of-range number for integers, a number
/// beyond f32's range for f32. 16-bit floats round such a number to inf.
void check_fits(const char* function, Scalar value, Dtype dtype);
/// Does what full() does, without check_fits: an integer that the dtype cannot hold wraps around, a float becomes the
/// smallest integer or inf.
Tensor filled(const Dims& sizes, Scalar value, Dtype dtype);

/// Does what empty() does.
Tensor new_memory(const Dims& sizes, Dtype dtype);
/// Returns the memory that an operation writes: `out`, if defined, after its shape and dtype are checked and its
/// version is raised; else new memory.
Tensor result_memory(const char* function, const Tensor& out, const Dims& sizes, Dtype dtype);
/// Checks `out`, which must be defined, and marks it as changed.
void take_result_memory(const char* function, const Tensor& out, const Dims& sizes, Dtype dtype);
/// Copies `source`, which must broadcast to `target`, into `target`, converted to its dtype. It checks nothing, records
/// nothing and does not raise the version.
void copy_values(const Tensor& target, const Tensor& source);

/// Throws ValueError if `x` is undefined or overlaps itself, and, while recording is on, if it is a leaf that requires
/// a gradient or a view of one, or if its change by `other` would have to be recorded and cannot be. Call
/// history_of(name, x, wrt(x, ...), wrt(other, ...)) before the change, and changed(x) after it.
void check_in_place(const char* function, const Tensor& x, const Tensor& other = {});
/// Does the same for a change that sets all elements to one number: then x may overlap itself.
void check_overwrite(const char* function, const Tensor& x);
/// Returns the history of x after `name` has set values that do not depend on the old ones.
History history_of_overwriting(const char* name, const Tensor& x);

}  // namespace attn
