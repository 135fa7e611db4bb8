// src/attention/unfused/unfused_normalizer.h: computes weights by operations that have gradients, where they are not
// those of the plain softmax.
#pragma once
#include "attention/call/call.h"

namespace attn {

struct UnfusedWeights {
  Tensor weights, logsumexp;  // logsumexp: of softmax only
};
/// Returns the weights [B, Hq, Tq, Tk] before dropout, 0 for masked pairs, from the scores, -inf where masked. `sinks`:
/// [Hq, 1, 1] or undefined; `tables`: what the expression of the weight looks up.
UnfusedWeights unfused_weights(const Call& call, const Tensor& scores, const Tensor& sinks,
                               const std::vector<Tensor>& tables);

}  // namespace attn
