// src/tensor/slope.h: multiplies dy by the derivative of an activation, in tensor operations that have gradients or in
// one pass by a kernel.
#pragma once
#include <attn/autograd.h>

#include "kernels/rows/target.h"
#include "tensor/record.h"

namespace attn {

/// Returns dy times the derivative at x (for tanh and sigmoid x is the activation's result), in x's dtype, rounded
/// once, without gradient history.
Tensor times_slope(const Tensor& dy, const Tensor& x, kernels::Slope op);

/// Does the same. If gradients are recorded, `slope` computes the derivative in tensor operations, so that the result
/// has a history; for half floats the result is then f32, not rounded.
template <typename F>
Tensor times_slope(const Tensor& dy, const Tensor& x, kernels::Slope op, F slope) {
  return grad_enabled() ? widen(dy) * slope(widen(x)) : times_slope(dy, x, op);
}

}  // namespace attn
