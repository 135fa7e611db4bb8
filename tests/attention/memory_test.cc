// tests/attention/memory_test.cc: memory does not grow with Tq x Tk: masks, biases, dropout, averaged weights of long
// sequences.
#include <attn/runtime.h>

#include "attention/truth.h"
#include "runtime/memory.h"

#include <gtest/gtest.h>

namespace attn::testing {
namespace {

/// On one thread: another might take part in the second call alone, and make the scratch that it keeps there.
template <typename F>
std::size_t peak_of(F&& call) {
  const int threads = num_threads();
  set_num_threads(1);
  call();  // scratch that the thread keeps is there
  const std::size_t before = runtime::allocated_bytes();
  runtime::reset_peak();
  call();
  set_num_threads(threads);
  return runtime::peak_bytes() - before;
}

TEST(Memory, NeverHoldsThePairs) {
  constexpr std::int64_t tokens = 4096, pairs = tokens * tokens;
  const Tensor q = normal({1, 2, tokens, 4}, 1), k = normal({1, 1, tokens, 4}, 2);
  const std::size_t small = 4 * static_cast<std::size_t>(q.numel()) * sizeof(float);
  const AttentionOptions options[] = {
      {},
      {.mask = Mask::causal() & ~Mask::window(3, -1) & Mask::documents(zeros({tokens}, Dtype::i64))},
      {.mask = Mask::blocks(zeros({1, 1, tokens / 64, 8}, Dtype::i64), 64)},
      {.bias = Bias::alibi(Bias::alibi_slopes(2))},
      {.score_mod = [](auto s, auto, auto h, auto i,
                       auto j) { return s + ScoreTable(Bias::alibi_slopes(2))(h) * (j - i); }},
      {.score_callback = [](const ScoreTile& tile) { tile.tanh(); }}};
  for (const AttentionOptions& option : options) EXPECT_LT(peak_of([&] { attention(q, k, k, option); }), small);
  EXPECT_LT(peak_of([&] {
              scaled_dot_product_attention(q, k, k,
                                           {.attn_mask = ones({1, tokens}), .dropout_p = 0.5, .is_causal = true});
            }),
            small);
  const std::size_t average = peak_of([&] { attention(q, k, k, {.weights = Weights::head_average}); });
  EXPECT_GE(average, pairs * sizeof(float));
  EXPECT_LT(average, pairs * sizeof(float) + small);
}

TEST(Memory, AdditiveScoresHoldNoPairsAndNoChannelsOfPairs) {
  constexpr std::int64_t tokens = 1024, channels = 16;
  const Tensor q = normal({1, tokens, 8}, 1), k = normal({1, tokens, 8}, 2), w = normal({channels}, 5);
  const Tensor w_q = normal({channels, 8}, 3), w_k = normal({channels, 8}, 4);
  const std::size_t projections = 2 * tokens * channels * sizeof(float), output = tokens * 8 * sizeof(float);
  EXPECT_LT(peak_of([&] { additive_attention(q, k, k, w_q, w_k, w); }), projections + 4 * output);
}

}  // namespace
}  // namespace attn::testing
