// src/attention/unfused/unfused_attention.h: gradients of attention by its unfused definition, every matrix stored:
// where the fused pass has none.
#pragma once
#include "attention/backward.h"
#include "tensor/record.h"

namespace attn {

/// What the forward pass left that the call does not say.
struct FromForward {
  const DropoutTiles* dropout = nullptr;  // torch's; null: none
  Tensor weight_keys = {};                // of Weights::top_k
};

/// The gradients in the order of Call::inputs(), with a history when the pass makes a graph. `at.saved(i)` is input i;
/// the results are the output, the weights and the logsumexp. Memory: some [B, Hq, Tq, Tk], and for additive scores [B,
/// Hq, Tq, Tk, A].
Gradients unfused_gradients(const Call& call, const FromForward& forward, const Backward& at);

}  // namespace attn
