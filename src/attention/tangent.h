// src/attention/tangent.h: computes the tangents of a checked call by a given kernel.
#pragma once
#include <attn/attention_jvp.h>

#include "attention/backward.h"
#include "kernels/attention/tangent_problem.h"

namespace attn {

/// Computes the tangents of a call in f32 or f64. `kernel`: null for the one of this processor.
AttentionResultTangents tangent_of(const Call& call, const SavedAttention& saved, const AttentionOptions& options,
                                   const AttentionTangents& tangents, const kernels::TangentKernel* kernel = nullptr);

}  // namespace attn
