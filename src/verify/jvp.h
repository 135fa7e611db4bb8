// src/verify/jvp.h: computes cases of forward mode: the tangents of the results of attention, and of its gradients.
#pragma once
#include "kernels/attention/tangent_problem.h"
#include "verify/inputs.h"
#include "verify/results.h"

namespace attn::cases {

/// Computes an f32 or f64 case with the given kernels; no results for 16-bit cases.
Results jvp_by(const kernels::TangentKernel& kernel, const kernels::GradientKernel& of_gradients, const Case& c,
               const Inputs& in);
Results jvp_by_library(const Case& c, const Inputs& in);

/// Returns a call of the pass alone, from what one forward pass saved; for the bench.
std::function<Tensor()> jvp_pass(const Case& c, const Inputs& in);

}  // namespace attn::cases
