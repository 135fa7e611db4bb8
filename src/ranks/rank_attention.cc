// src/ranks/rank_attention.cc: says which rows a rank has, and chooses between the layouts.
#include <attn/rank_attention.h>

#include "model/part_tree.h"
#include "ranks/heads_exchange.h"
#include "ranks/stripe_stream.h"
#include "ranks/stripes.h"
#include "runtime/format.h"

namespace attn {

std::vector<std::int64_t> rank_rows(const Ranks& ranks, RankLayout layout, std::int64_t length) {
  if (length < 0) throw ValueError(runtime::format("rank_rows: length is {}; it must be at least 0", length));
  std::vector<std::int64_t> rows;
  if (layout == RankLayout::heads) {
    const Span span = share_of(length, ranks.rank(), ranks.size());
    for (std::int64_t row = span.begin; row < span.end; ++row) rows.push_back(row);
    return rows;
  }
  constexpr std::int64_t block = Stripes::block;
  for (std::int64_t first = ranks.rank() * block; first < length; first += ranks.size() * block)
    for (std::int64_t row = first; row < length && row < first + block; ++row) rows.push_back(row);
  return rows;
}

AttentionResult rank_attention(const Tensor& q, const Tensor& k, const Tensor& v, std::int64_t length,
                               RankLayout layout, const Ranks& ranks, const AttentionOptions& options) {
  if (layout == RankLayout::heads) return attention_by_heads(q, k, v, length, ranks, options, nullptr);
  return attention_by_stripes(q, k, v, length, ranks, options, nullptr);
}

AttentionResult rank_attention_forward(const Tensor& q, const Tensor& k, const Tensor& v, std::int64_t length,
                                       RankLayout layout, const Ranks& ranks, const AttentionOptions& options,
                                       AttentionSaved& saved) {
  if (layout == RankLayout::heads) return attention_by_heads(q, k, v, length, ranks, options, &saved);
  return attention_by_stripes(q, k, v, length, ranks, options, &saved);
}

AttentionGradients rank_attention_backward(const Tensor& q, const Tensor& k, const Tensor& v, std::int64_t length,
                                           RankLayout layout, const Ranks& ranks, const AttentionOptions& options,
                                           const AttentionSaved& saved, const AttentionBackwardOptions& wanted) {
  if (layout == RankLayout::heads) return attention_backward_by_heads(q, k, v, length, ranks, options, saved, wanted);
  return attention_backward_by_stripes(q, k, v, length, ranks, options, saved, wanted);
}

}  // namespace attn
