// src/nn/multihead_masks.h: what a call of MultiheadAttention must fit, and its masks as attention takes them.
#pragma once
#include <attn/attention.h>
#include <attn/nn/multihead_attention.h>

namespace attn::nn {

/// Sizes of one call; everything is batched: N = 1 stands for "unbatched".
struct MultiheadSizes {
  std::int64_t batch = 0, heads = 0, q_rows = 0, k_rows = 0;
};

/// Every mistake of the caller is thrown here.
MultiheadSizes check_call(const MultiheadAttention& module, const Tensor& query, const Tensor& key, const Tensor& value,
                          const MultiheadAttentionCall& call);

/// Bool and float masks, in the shape [N, H, L, S + extra] or one that broadcasts to it; undefined where there is none.
struct MultiheadMasks {
  Tensor blocked, padding;      // bool, True = blocked
  Tensor added, padding_added;  // float
  bool causal = false;          // instead of attn_mask

  void apply(AttentionOptions& options) const;
};

/// `extra` columns that no mask hides are appended.
MultiheadMasks read_masks(const MultiheadAttentionCall& call, const MultiheadSizes& sizes, std::int64_t extra,
                          bool causal);

}  // namespace attn::nn
