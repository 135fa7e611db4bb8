// src/nn/multihead_masks.h: checks a call of MultiheadAttention and converts its masks for `attention`.
#pragma once
#include <attn/attention.h>
#include <attn/nn/multihead_attention.h>

namespace attn::nn {

/// The sizes of one call. An unbatched call has N = 1.
struct MultiheadSizes {
  std::int64_t batch = 0, heads = 0, q_rows = 0, k_rows = 0;
};

/// Throws for every mistake of the caller, and returns the sizes.
MultiheadSizes check_call(const MultiheadAttention& module, const Tensor& query, const Tensor& key, const Tensor& value,
                          const MultiheadAttentionCall& call);

/// The masks of a call, each of a shape that broadcasts to [N, H, L, S + extra]; a mask that is not given is undefined.
struct MultiheadMasks {
  Tensor blocked, padding;      // bool, True = masked
  Tensor added, padding_added;  // float
  bool causal = false;          // if true, a causal mask replaces attn_mask

  void apply(AttentionOptions& options) const;
};

/// Returns the masks of a call, with `extra` columns appended that mask nothing; only `causal` masks those keys too.
MultiheadMasks read_masks(const MultiheadAttentionCall& call, const MultiheadSizes& sizes, std::int64_t extra,
                          bool causal);

}  // namespace attn::nn
