// src/attention/schedule/backward_plan.h: chooses the kernel of the backward pass.
#pragma once
#include "kernels/attention/backward_problem.h"

namespace attn {

/// A kernel of the backward pass and its name.
struct BackwardPlan {
  const char* name = "ref";
  const kernels::GradientKernel* kernel = nullptr;
  /// Computes units again in which a number is not finite; null: the reference code of gradients.
  const kernels::GradientKernel* reference = nullptr;
};
/// Returns the first kernel that accepts the problem. The reference code accepts everything in f32 and f64; bf16 that
/// the bf16 kernel does not accept gets no kernel.
BackwardPlan plan_backward(const kernels::AttentionProblem& problem);

/// Returns whether a score expression has numbers that f32 cannot hold, which only the reference code computes.
bool needs_reference(const kernels::AttentionProblem& problem);

}  // namespace attn
