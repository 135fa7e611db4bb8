// src/tensor/promote.h: the dtype two operands are computed in, by torch's rule.
#pragma once
#include <attn/tensor.h>

namespace attn {

/// The smallest dtype in the order bool, i32, i64, (bf16, f16), f32, f64 that holds both; bf16 with f16 gives f32.
Dtype promote(Dtype a, Dtype b);
/// Kinds rank bool, integer, floating. A rank-0 tensor counts beside a larger one only when its kind ranks higher.
Dtype result_type(const Tensor& a, const Tensor& b);
/// A number counts only when its kind ranks higher: i64 for an integer then, f32 for a floating one.
Dtype result_type(const Tensor& a, Scalar b);
/// f32 for integers and bool, else the dtype itself: what exp, sqrt, / and their like give.
Dtype floating_type(Dtype dtype);

}  // namespace attn
