// src/attention/schedule/plan.h: the kernels in order of preference, and which of them takes a call.
#pragma once
#include <attn/attention.h>

#include "attention/schedule/attention_kernel.h"

#include <span>

namespace attn {

/// The kernels of this processor, the best first.
std::span<const AttentionKernel> attention_kernels();

/// The first that takes the problem; the last, the reference, takes everything.
const AttentionKernel& plan_attention(const kernels::AttentionProblem& problem, Plan& plan);

/// Whether f16 and bf16 should be computed in f32 copies: no kernel takes the call as it is; or it widens rows on their
/// way, and `wide`: a tape wants what they were widened to, or q is projected and would be rounded before; or the score
/// is additive, whose projections are never rounded to 16 bits.
bool better_in_f32(const AttentionKernel& planned, const kernels::AttentionProblem& problem, bool wide);

}  // namespace attn
