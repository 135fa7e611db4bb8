// src/attention/unfused/unfused_attention.h: computes those gradients of attention that the fused backward pass does
// not have, by the unfused definition, which stores every matrix.
#pragma once
#include "attention/backward.h"
#include "tensor/record.h"

namespace attn {

/// State of the forward pass that the call does not contain.
struct FromForward {
  const DropoutTiles* dropout = nullptr;  // torch's dropout; null: none
  Tensor weight_keys = {};                // with Weights::top_k the keys of the returned weights
};

/// Returns the gradients in the order of Call::inputs(); they have a history if the backward pass creates a graph.
/// `at.saved(i)` is input i. The results whose gradients come in are the output, the weights and the logsumexp. Memory:
/// several matrices [B, Hq, Tq, Tk], and for additive scores [B, Hq, Tq, Tk, A].
Gradients unfused_gradients(const Call& call, const FromForward& forward, const Backward& at);

}  // namespace attn
