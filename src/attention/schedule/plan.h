// src/attention/schedule/plan.h: lists the kernels in order of preference and chooses the one for a call.
#pragma once
#include <attn/attention.h>

#include "attention/schedule/attention_kernel.h"

#include <span>

namespace attn {

/// Returns the kernels of this processor, the best first.
std::span<const AttentionKernel> attention_kernels();

/// Returns the first kernel that accepts the problem; the last one, the reference code, accepts everything. Adds the
/// answers to `plan`.
const AttentionKernel& plan_attention(const kernels::AttentionProblem& problem, Plan& plan);

/// Returns whether an f16 or bf16 call should be computed in f32 copies. There are four reasons. No vector kernel
/// takes the call as it is, though there are some. Or the planned kernel widens rows while it reads them, and `wide` is
/// set: autograd needs the widened values, or q is projected and would be rounded first. Or the score is additive,
/// whose projections are never rounded to 16 bits. Or the normalizer is not the plain softmax.
bool better_in_f32(const AttentionKernel& planned, const kernels::AttentionProblem& problem, bool wide);

}  // namespace attn
