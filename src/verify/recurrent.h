// src/verify/recurrent.h: computes cases of linear attention with a state and of the causal convolution.
#pragma once
#include "kernels/reference.h"
#include "verify/inputs.h"
#include "verify/results.h"

namespace attn::cases {

using UnaryFunction = void (*)(kernels::Unary op, kernels::Element element, const void* x, void* y,
                               std::int64_t n) noexcept;
/// f32 and f64 by some kernels: output and state, or all gradients; 16 bits: none.
Results recurrent_by(const kernels::RecurrentKernels& kernels, UnaryFunction unary, const Case& c, const Inputs& in);
Results recurrent_by_library(const Case& c, const Inputs& in);

}  // namespace attn::cases
