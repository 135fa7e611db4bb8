// tests/attention/random_score_options.h: calls with a random score expression: their sizes, and random options beside
// it.
#pragma once
#include <attn/attention.h>

#include "attention/random_scores.h"
#include "attention/truth.h"

namespace attn::testing {

/// The sizes that options follow.
struct ScoreCounts {
  std::int64_t batch, k_heads, heads, rows, keys;
};

/// `keys`: what their number is drawn from.
inline ScoreCounts random_score_counts(std::mt19937& random, std::initializer_list<std::int64_t> keys) {
  const auto one_of = [&](std::initializer_list<std::int64_t> all) { return *(all.begin() + random() % all.size()); };
  const std::int64_t batch = one_of({1, 2}), group = one_of({1, 2, 3}), k_heads = one_of({1, 2});
  const std::int64_t rows = one_of({1, 2, 17, 40, 70});
  return {.batch = batch, .k_heads = k_heads, .heads = group * k_heads, .rows = rows, .keys = one_of(keys)};
}

/// `dtype`: f32 or f64.
inline AttentionOptions random_score_options(std::mt19937& random, unsigned seed, const ScoreCounts& n, Dtype dtype) {
  const int depth = static_cast<int>(seed % 5) + 1;
  const auto of_each_item = [&](std::int64_t count) {
    return integers(std::vector<std::int64_t>(static_cast<std::size_t>(n.batch), count));
  };
  AttentionOptions options;
  options.score_mod = dtype == Dtype::f64 ? RandomScores<double>(seed, n.batch, n.heads, true).tree(depth).expression
                                          : RandomScores<float>(seed, n.batch, n.heads, true).tree(depth).expression;
  if (random() % 2) options.mask = Mask::causal(Align::bottom_right);
  if (random() % 3 == 0) options.mask = options.mask & ~Mask::window(20, 1, Align::bottom_right);
  if (random() % 3 == 0) options.softcap = 3;
  if (random() % 3 == 0) options.temperature = 0.7;
  if (random() % 3 == 0) options.sinks = normal({n.heads}, seed, dtype);
  if (random() % 3 == 0) options.bias = Bias::alibi(Bias::alibi_slopes(n.heads), Align::bottom_right);
  if (random() % 3 == 0) options.key_lengths = of_each_item(n.keys - n.keys / 3);
  if (random() % 4 == 0) options.key_start = of_each_item(n.keys / 4);
  if (random() % 4 == 0) options.query_lengths = of_each_item(n.rows / 2);
  return options;
}

}  // namespace attn::testing
