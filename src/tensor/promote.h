// src/tensor/promote.h: chooses the dtype in which two operands are computed, by torch's rule.
#pragma once
#include <attn/tensor.h>

namespace attn {

/// Returns the later of both dtypes in the order bool, i32, i64, (bf16, f16), f32, f64; bf16 with f16 gives f32.
Dtype promote(Dtype a, Dtype b);
/// Returns the dtype in which two tensors are computed. Kinds rank bool, integer, floating. A tensor of rank 0 changes
/// the dtype of one of higher rank only if its kind ranks higher.
Dtype result_type(const Tensor& a, const Tensor& b);
/// Returns the dtype in which a tensor and a number are computed. The number counts only if its kind ranks higher: then
/// an integer gives i64, a floating number f32.
Dtype result_type(const Tensor& a, Scalar b);
/// Returns f32 for integers and bool, else the dtype itself. exp, sqrt, / and similar functions return this dtype.
Dtype floating_type(Dtype dtype);

}  // namespace attn
