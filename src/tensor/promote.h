// src/tensor/promote.h: chooses the dtype in which two operands are computed, by torch's rule.
#pragma once
#include <attn/tensor.h>

namespace attn {

/// Returns the smallest dtype in the order bool, i32, i64, (bf16, f16), f32, f64 that holds both; bf16 with f16 gives
/// f32.
Dtype promote(Dtype a, Dtype b);
/// Returns the dtype for two tensors. Kinds rank bool, integer, floating. A rank-0 tensor counts beside a tensor of
/// higher rank only if its kind ranks higher.
Dtype result_type(const Tensor& a, const Tensor& b);
/// Returns the dtype for a tensor and a number. The number counts only if its kind ranks higher: then an integer gives
/// i64, a floating number f32.
Dtype result_type(const Tensor& a, Scalar b);
/// Returns f32 for integers and bool, else the dtype itself. exp, sqrt, / and similar functions return this dtype.
Dtype floating_type(Dtype dtype);

}  // namespace attn
