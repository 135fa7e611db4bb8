// src/attention/backward.h: the gradients of an attention call by the fused backward pass, which recomputes the weights
// tile by tile.
#pragma once
#include <attn/attention_backward.h>

#include "attention/call/call.h"
#include "attention/schedule/backward_steps.h"

#include <memory>

namespace attn {

/// What the forward pass leaves for the backward pass: no more than a few numbers a row.
struct SavedAttention {
  Tensor output;    // [B, Hq, Tq, Dv], without its history
  Tensor max, sum;  // [B, Hq, Tq], compute type: the final maximum and sum of each row
  std::shared_ptr<const DropoutTiles> dropout = nullptr;  // null: none
  Tensor weight_keys = {};                                // of Weights::top_k
  int checked = 0;  // tensors that the tape keeps to see whether they were changed in place
};

/// Also what needs the library's own tape, on which q and k came to be.
struct FusedGradients : AttentionGradients {
  Tensor additive_w;  // [A]
  // of each tensor of numbers that the score expression looks up, in its shape and dtype
  std::vector<Tensor> looked_up;
};

/// What flows back, and how far.
struct AttentionBackward {
  Tensor output;                                             // the gradient of the output, [B, Hq, Tq, Dv]
  Tensor logsumexp;                                          // of the logsumexp, [B, Hq, Tq], or undefined
  bool k = true, v = true, sinks = true, additive_w = true;  // wanted
  std::vector<bool> bias;                                    // of each term; empty: all
  std::vector<bool> looked_up = {};                          // of each tensor; empty: all
  const BackwardPlan* plan = nullptr;                        // null: the best kernel
  // memory for the results, of any dtype: written at once where the kernels write that one
  Tensor dq = {}, dk = {}, dv = {};
};

/// bf16 by the processor's dot product where it has one; else, and f16, in f32 copies, rounded once.
FusedGradients attention_backward(const Call& call, const SavedAttention& saved, const AttentionBackward& options);

/// What a caller kept, checked, as the kernels read it.
SavedAttention checked_saved(const Call& call, const AttentionSaved& saved);

/// Tells the tape how the results of the call came about; `saved.output` is that of the result, in the kernels' shape.
void record_attention(Call call, SavedAttention saved, const AttentionResult& result);

}  // namespace attn
