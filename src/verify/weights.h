// src/verify/weights.h: computes the weights that a call returns from all weights, in simple loops.
#pragma once
#include <attn/attention.h>

#include "verify/results.h"

namespace attn::cases {

/// Computes the requested weights from weights [B, H, Tq, Tk]; returns no results if none are requested. `starts`: the
/// first row of each packed sequence, and the end; undefined: a single sequence.
Results weights_asked_for(const Weights& weights, const Tensor& full, const Tensor& starts);

}  // namespace attn::cases
