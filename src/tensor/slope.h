// src/tensor/slope.h: dy times the derivative of an activation: over tensors, to be differentiated again, or in one
// pass by a kernel.
#pragma once
#include <attn/autograd.h>

#include "kernels/rows/target.h"
#include "tensor/record.h"

namespace attn {

/// In x's dtype, rounded once, without history.
Tensor times_slope(const Tensor& dy, const Tensor& x, kernels::Slope op);

/// The same bits with a history where one is wanted: `slope` of a tensor in the operations of `op`.
template <typename F>
Tensor times_slope(const Tensor& dy, const Tensor& x, kernels::Slope op, F slope) {
  return grad_enabled() ? widen(dy) * slope(widen(x)) : times_slope(dy, x, op);
}

}  // namespace attn
