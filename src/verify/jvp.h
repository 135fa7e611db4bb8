// src/verify/jvp.h: computes cases of forward mode: the tangents of the results of attention, and of its gradients.
#pragma once
#include "kernels/attention/tangent_problem.h"
#include "verify/inputs.h"
#include "verify/results.h"

namespace attn::cases {

/// f32 and f64 by some kernels; 16 bits: none.
Results jvp_by(const kernels::TangentKernel& kernel, const kernels::GradientKernel& of_gradients, const Case& c,
               const Inputs& in);
Results jvp_by_library(const Case& c, const Inputs& in);

/// Returns a call of the pass alone, from what one forward pass saved; for the bench.
std::function<Tensor()> jvp_pass(const Case& c, const Inputs& in);

}  // namespace attn::cases
