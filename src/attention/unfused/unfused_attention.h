// src/attention/unfused/unfused_attention.h: computes gradients of attention by its unfused definition, with every
// matrix stored, where the fused pass has none.
#pragma once
#include "attention/backward.h"
#include "tensor/record.h"

namespace attn {

/// State of the forward pass that the call does not contain.
struct FromForward {
  const DropoutTiles* dropout = nullptr;  // torch's dropout; null: none
  Tensor weight_keys = {};                // with Weights::top_k
};

/// Returns the gradients in the order of Call::inputs(), with a history if the pass creates a graph. `at.saved(i)` is
/// input i; the results are the output, the weights and the logsumexp. Memory: several [B, Hq, Tq, Tk], and for
/// additive scores [B, Hq, Tq, Tk, A].
Gradients unfused_gradients(const Call& call, const FromForward& forward, const Backward& at);

}  // namespace attn
