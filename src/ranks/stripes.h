// src/ranks/stripes.h: attention on ranks that hold every R-th block of 64 rows and keys: the keys of all pass by each
// rank in their order.
#pragma once
#include <attn/attention_backward.h>
#include <attn/ranks.h>

#include <cstdint>

namespace attn {

/// Computes attention for this rank's rows of q, k and v, which are those of rank_rows(ranks, RankLayout::stripes,
/// length). Collective. `saved`: null, or what attention_forward fills.
AttentionResult attention_by_stripes(const Tensor& q, const Tensor& k, const Tensor& v, std::int64_t length,
                                     const Ranks& ranks, const AttentionOptions& options, AttentionSaved* saved);

/// Computes the gradients of this rank's rows; that of the sinks is complete at every rank. Collective.
AttentionGradients attention_backward_by_stripes(const Tensor& q, const Tensor& k, const Tensor& v, std::int64_t length,
                                                 const Ranks& ranks, const AttentionOptions& options,
                                                 const AttentionSaved& saved, const AttentionBackwardOptions& wanted);

}  // namespace attn
