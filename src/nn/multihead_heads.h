// src/nn/multihead_heads.h: computes attention for heads that are already projected and split.
#pragma once
#include "nn/multihead_masks.h"

namespace attn::nn {

struct HeadsCall {
  Tensor q, k, v;  // [N, H, L, D], [N, H, S, D], [N, H, S, D]
  MultiheadMasks masks;
  double dropout = 0;  // the probability; the numbers come from the global generator in the order of [N, H, L, S]
  bool need_weights = false;
  bool average_weights = false;
  bool nan_rows = false;  // a row that attends to no key gets NaN instead of 0
};

struct HeadsResult {
  Tensor output;   // [N, H, L, D]
  Tensor weights;  // [N, H, L, S], averaged [N, L, S], or undefined
};

HeadsResult attend_heads(const HeadsCall& call);

}  // namespace attn::nn
