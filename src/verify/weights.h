// src/verify/weights.h: what a call gives back of its weights, from all of them, in plain loops.
#pragma once
#include <attn/attention.h>

#include "verify/results.h"

namespace attn::cases {

/// Of weights [B, H, Tq, Tk]; none: no results. `starts`: the first row of each packed sequence, and the end;
/// undefined: one item.
Results weights_asked_for(const Weights& weights, const Tensor& full, const Tensor& starts);

}  // namespace attn::cases
