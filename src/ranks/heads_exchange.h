// src/ranks/heads_exchange.h: attention on ranks that hold rows of all heads: they exchange them for all rows of some
// heads, compute these as one process does, and exchange the results back.
#pragma once
#include <attn/attention_backward.h>
#include <attn/rank_attention.h>

#include <cstdint>

namespace attn {

/// Computes attention for this rank's rows of q, k and v, which are those of rank_rows(ranks, RankLayout::heads,
/// length). Collective. `saved`: null, or what attention_forward fills.
AttentionResult attention_by_heads(const Tensor& q, const Tensor& k, const Tensor& v, std::int64_t length,
                                   const Ranks& ranks, const AttentionOptions& options, AttentionSaved* saved);

/// Computes the gradients for this rank's rows; those of options are complete at every rank. Collective.
AttentionGradients attention_backward_by_heads(const Tensor& q, const Tensor& k, const Tensor& v, std::int64_t length,
                                               const Ranks& ranks, const AttentionOptions& options,
                                               const AttentionSaved& saved, const AttentionBackwardOptions& wanted);

}  // namespace attn
