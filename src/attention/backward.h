// src/attention/backward.h: computes the gradients of an attention call by the fused backward pass, which recomputes
// the weights tile by tile.
#pragma once
#include <attn/attention_backward.h>

#include "attention/call/call.h"
#include "attention/schedule/backward_steps.h"

#include <memory>

namespace attn {

/// The state that the forward pass saves for the backward pass: besides the output, a few numbers per row.
struct SavedAttention {
  Tensor output;    // [B, Hq, Tq, Dv], detached
  Tensor max, sum;  // [B, Hq, Tq], compute type: the final maximum and sum of each row
  std::shared_ptr<const DropoutTiles> dropout = nullptr;  // torch's dropout; null: none
  Tensor weight_keys = {};                                // with Weights::top_k the keys of the returned weights
  int checked = 0;  // number of saved tensors that autograd checks for in-place changes
};

/// All gradients: those of AttentionGradients, and those that only calls recorded for autograd need.
struct FusedGradients : AttentionGradients {
  Tensor additive_w;  // [A]
  // the gradient of each floating tensor that the score expression looks up, in its shape and dtype
  std::vector<Tensor> looked_up;
};

/// The incoming gradients, and which gradients to compute.
struct AttentionBackward {
  Tensor output;                                             // the gradient of the output, [B, Hq, Tq, Dv]
  Tensor logsumexp;                                          // the gradient of the logsumexp, [B, Hq, Tq], or undefined
  bool k = true, v = true, sinks = true, additive_w = true;  // which gradients to compute besides q's
  std::vector<bool> bias;                                    // which bias terms' gradients to compute; empty: all
  std::vector<bool> looked_up = {};                          // which looked-up tensors' gradients; empty: all
  const BackwardPlan* plan = nullptr;                        // null: chosen by plan_backward
  // Memory for the results, of any dtype; kernels write to it directly if they write that dtype.
  Tensor dq = {}, dk = {}, dv = {};
  // For a kernel of the tangent of the backward pass: the direction; the results are then tangents of the gradients.
  const kernels::GradientTangent* along = nullptr;
};

/// Computes the gradients. bf16 uses the processor's bf16 dot product if it has one; other 16-bit calls are computed in
/// f32 copies and rounded once.
FusedGradients attention_backward(const Call& call, const SavedAttention& saved, const AttentionBackward& options);

/// Checks the state that the caller saved and returns it as the kernels read it.
SavedAttention checked_saved(const Call& call, const AttentionSaved& saved);

/// Records the call for autograd. `saved.output` is the result's output, in the kernels' shape.
void record_attention(Call call, SavedAttention saved, const AttentionResult& result);

}  // namespace attn
