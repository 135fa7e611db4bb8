// bench/ranks/stripes.h: the random operands of rank_attention in stripes, heads of 64.
#pragma once
#include <attn/ops.h>
#include <attn/random.h>
#include <attn/rank_attention.h>

#include <cstdint>

namespace attn::bench {

/// The rows of this rank.
struct Stripes {
  static constexpr auto layout = RankLayout::stripes;
  Stripes(const Ranks& ranks, std::int64_t length, std::int64_t heads)
      : rows(static_cast<std::int64_t>(rank_rows(ranks, layout, length).size())), q(randn({1, heads, rows, 64})),
        k(randn({1, heads, rows, 64})), v(randn({1, heads, rows, 64})) {}
  std::int64_t rows;
  Tensor q, k, v;
};

inline AttentionOptions masked(bool causal) {
  AttentionOptions options;
  if (causal) options.mask = Mask::causal();
  return options;
}

}  // namespace attn::bench
