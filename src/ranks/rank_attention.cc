// src/ranks/rank_attention.cc: which rows a rank has, and the choice between the layouts.
#include <attn/rank_attention.h>

#include "model/part_tree.h"
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
  constexpr std::int64_t block = 64;
  for (std::int64_t first = ranks.rank() * block; first < length; first += ranks.size() * block)
    for (std::int64_t row = first; row < length && row < first + block; ++row) rows.push_back(row);
  return rows;
}

namespace {

[[noreturn]] void refuse(RankLayout layout) {
  throw ValueError(
      runtime::format("rank_attention: the layout {} is not built", layout == RankLayout::heads ? "heads" : "stripes"));
}

}  // namespace

AttentionResult rank_attention(const Tensor&, const Tensor&, const Tensor&, std::int64_t, RankLayout layout,
                               const Ranks&, const AttentionOptions&) {
  refuse(layout);
}

AttentionResult rank_attention_forward(const Tensor&, const Tensor&, const Tensor&, std::int64_t, RankLayout layout,
                                       const Ranks&, const AttentionOptions&, AttentionSaved&) {
  refuse(layout);
}

AttentionGradients rank_attention_backward(const Tensor&, const Tensor&, const Tensor&, std::int64_t, RankLayout layout,
                                           const Ranks&, const AttentionOptions&, const AttentionSaved&,
                                           const AttentionBackwardOptions&) {
  refuse(layout);
}

}  // namespace attn
