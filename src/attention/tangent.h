// src/attention/tangent.h: computes the tangents of a checked call by a given kernel; what the tangents of its results
// and those of its gradients share.
#pragma once
#include <attn/attention_jvp.h>

#include "attention/backward.h"
#include "attention/lower.h"
#include "attention/score/lower_score.h"
#include "kernels/attention/tangent_problem.h"

namespace attn {

/// Returns the kernels of this processor; null: only the reference code.
const kernels::TangentTarget* tangent_target_here();

/// Checks that a tangent, if defined, has its operand's shape and dtype.
void check_tangent(const char* function, const char* name, const Tensor& tangent, const Tensor& x);
void check_tangents(const char* function, const Tensor& q, const Tensor& k, const Tensor& v,
                    const AttentionOptions& options, const AttentionTangents& tangents);
/// Refuses scores other than the (scaled) dot product, returned weights and out.
void check_supported(const char* function, const AttentionOptions& options);
/// Refuses a callable, which has no derivative, and operands that require a gradient: the results would lose it.
void refuse_lost(const char* function, const Call& call, const AttentionTangents& tangents);

/// Returns a tensor in f32; undefined stays undefined.
Tensor detached_f32(const Tensor& x);
AttentionTangents detached_f32(const AttentionTangents& tangents);

/// Returns rows as kernels read them, [B, H, T, D] with a contiguous last dim, and describes them; nothing if `x` is
/// undefined.
Tensor rows_as_read(const Call& call, const Tensor& x, const void*& data, std::int64_t (&stride)[3]);

/// A call and the direction of its operands as kernels read them, and the memory that these refer to. It cannot be
/// copied, because `tangent` refers to its members.
struct MovingCall {
  kernels::AttentionTangent tangent;
  Tensor q, k, v, sinks;
  LoweredBias bias;
  LoweredScoreGradient expression;

  MovingCall(const Call& call, const SavedAttention& saved, const AttentionOptions& options,
             const AttentionTangents& tangents);
  MovingCall(const MovingCall&) = delete;
  MovingCall& operator=(const MovingCall&) = delete;
  /// Computes the tangents of the results, to which `tangent` then refers. `kernel`: null for the one of this
  /// processor.
  AttentionResultTangents run(const Call& call, const kernels::TangentKernel* kernel = nullptr);
};

/// Computes the tangents of a call in f32 or f64. `kernel`: null for the one of this processor.
AttentionResultTangents tangent_of(const Call& call, const SavedAttention& saved, const AttentionOptions& options,
                                   const AttentionTangents& tangents, const kernels::TangentKernel* kernel = nullptr);

/// Computes the tangents of the gradients of a call in f32 or f64. `flows`: the incoming gradients, and which gradients
/// to compute. `moved`: the tangents of the operands; `output` and `logsumexp`: those of the incoming gradients, shaped
/// as the results, or undefined.
struct GradientDirection {
  const AttentionTangents& moved;
  Tensor output, logsumexp;
};
AttentionGradients gradient_tangent_of(const Call& call, const SavedAttention& saved, const AttentionOptions& options,
                                       AttentionBackward flows, const GradientDirection& direction,
                                       const BackwardPlan* plan = nullptr);

}  // namespace attn
