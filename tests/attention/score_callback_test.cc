// tests/attention/score_callback_test.cc: the caller's callable on tiles of scores: what it is shown, its place, its
// exceptions.
#include <attn/runtime.h>

#include "attention/calls.h"
#include "support/errors.h"
#include "support/golden.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>

namespace attn::testing {
namespace {

const ScoreCallback capped = {[](const ScoreTile& tile) {
                                tile.each([](auto s, auto, auto) { return s / 2; });
                                tile.tanh();
                                tile.each([](auto s, auto i, auto j) {
                                  return 2 * s - static_cast<decltype(s)>(0.125) * static_cast<decltype(s)>(i - j);
                                });
                              },
                              Align::bottom_right};

/// As an expression the same operations: whatever the cut, the same bits.
TEST(ScoreCallback, AnElementwiseCallableKeepsItsBitsHoweverTheWorkIsCut) {
  const auto expression = [](auto s, auto, auto, auto i, auto j) { return 2 * tanh(s / 2) - 0.125 * (i - j); };
  const AttentionOptions by_expression{.mask = Mask::causal(Align::bottom_right),
                                       .score_mod = ScoreExpression(expression).aligned(Align::bottom_right)};
  const AttentionOptions by_callable{.mask = Mask::causal(Align::bottom_right), .score_callback = capped};
  const int before = num_threads();
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16})
    for (const std::int64_t rows : {1, 3, 70}) {
      const Inputs in = inputs({2, 4, rows, 16}, {2, 2, 1200, 16}, 8, dtype);
      const Tensor expected = run(in, by_expression);
      for (const int threads : {1, 2, 3, 8}) {
        set_num_threads(threads);
        EXPECT_TRUE(bits_equal(run(in, by_callable), expected))
            << name_of(dtype) << " " << rows << " rows, " << threads << " threads";
      }
    }
  set_num_threads(before);
}

TEST(ScoreCallback, IsShownEveryVisiblePairAtItsPlace) {
  const std::int64_t rows = 70, keys = 150;
  const Inputs in = inputs({2, 4, rows, 8}, {2, 2, keys, 8}, 4);
  const Tensor scores = attention_scores(in.q, in.k);
  std::mutex lock;
  std::set<std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>> shown;
  std::atomic<int> wrong{0};
  const auto look = [&](const ScoreTile& tile) {
    const std::lock_guard<std::mutex> hold(lock);
    wrong += tile.dtype != Dtype::f32 || tile.rows > 64 || tile.keys > 64 || tile.row_stride != 1;
    wrong += tile.row_position != tile.row + keys - rows - 3 - (tile.batch == 1 ? 10 : 0) ||
             tile.key_position != tile.key - 3;
    for (std::int64_t m = 0; m < tile.rows; ++m)
      for (std::int64_t n = 0; n < tile.keys; ++n) {
        shown.insert({tile.batch, tile.head, tile.row + m, tile.key + n});
        const float s = static_cast<const float*>(tile.data)[m * tile.row_stride + n * tile.key_stride];
        wrong +=
            s != static_cast<float>(
                     scores.data<float>()[((tile.batch * 4 + tile.head) * rows + tile.row + m) * keys + tile.key + n]);
      }
  };
  attention(in.q, in.k, in.v,
            {.score_callback = {look, Align::bottom_right},
             .key_lengths = integers({keys, keys - 10}),
             .key_start = integers({3, 3})});
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(shown.size(), static_cast<std::size_t>(4 * rows * ((keys - 3) + (keys - 13))));
}

TEST(ScoreCallback, StandsAfterTheExpressionAndBeforeTheTemperature) {
  const Inputs in = inputs({1, 2, 20, 8}, {1, 2, 30, 8}, 8);
  const auto twice = [](const ScoreTile& tile) { tile.each([](auto s, auto, auto) { return s * 2; }); };
  const auto square = [](auto s, auto, auto, auto, auto) { return s * s; };
  const auto both = [](auto s, auto, auto, auto, auto) { return s * s * 2 / 0.7; };
  EXPECT_TRUE(bits_equal(run(in, {.score_mod = square, .score_callback = {twice, Align::top_left}, .temperature = 0.7}),
                         run(in, {.score_mod = both})));
}

TEST(ScoreCallback, ExpAndTanhOfATileAreThoseOfTheLibrary) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64}) {
    Tensor x = normal({9, 64}, 3, dtype);
    const Tensor before = x.clone();
    const ScoreTile tile{.data = x.data(), .dtype = dtype, .rows = 37, .keys = 9, .row_stride = 1, .key_stride = 64};
    tile.exp();
    EXPECT_TRUE(bits_equal(x.narrow(1, 0, 37).contiguous(), exp(before.narrow(1, 0, 37)).contiguous()));
    EXPECT_TRUE(bits_equal(x.narrow(1, 37, 27).contiguous(), before.narrow(1, 37, 27).contiguous()));
    x.copy_(before);
    tile.tanh();
    EXPECT_TRUE(bits_equal(x.narrow(1, 0, 37).contiguous(), tanh(before.narrow(1, 0, 37)).contiguous()));
  }
}

TEST(ScoreCallback, ItsExceptionsReachTheCaller) {
  const int before = num_threads();
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16})
    for (const int threads : {1, 3}) {
      set_num_threads(threads);
      const Inputs in = inputs({2, 4, 70, 8}, {2, 2, 1100, 8}, 4, dtype);
      std::atomic<int> calls{0};
      const auto fail = [&](const ScoreTile& tile) {
        ++calls;
        if (tile.head == 2) throw std::runtime_error("the callable's own words");
      };
      EXPECT_EQ(error_of<std::runtime_error>(
                    [&] { attention(in.q, in.k, in.v, {.score_callback = {fail, Align::top_left}}); }),
                "the callable's own words");
      const int after_failure = calls;
      EXPECT_NO_THROW(attention(in.q, in.k, in.v));  // the pool goes on
      EXPECT_EQ(calls, after_failure);
    }
  set_num_threads(before);
  EXPECT_EQ(error_of<ShapeError>([] {
              attention(ones({2, 4}), ones({3, 4}), ones({3, 4}), {.score_callback = [](const ScoreTile&) {}});
            }).find("attention: score_callback does not say how 2 rows stand against 3 keys"),
            0u);
}

/// What the kernels keep in the thread's memory is not what the callable's own calls use.
TEST(ScoreCallback, MayCallTheLibrary) {
  const Inputs in = inputs({1, 2, 70, 32}, {1, 2, 300, 32}, 32);
  const Tensor a = normal({300, 300}, 5), expected_product = matmul(a, a);
  const AttentionOptions plain;
  const Tensor expected = run(in, plain);
  std::atomic<int> wrong{0};
  const auto busy = [&](const ScoreTile&) {
    wrong += !same_bits(matmul(a, a), expected_product);
    wrong += !same_bits(run(in, plain), expected);
  };
  EXPECT_TRUE(bits_equal(run(in, {.score_callback = {busy, Align::top_left}}), expected));
  EXPECT_EQ(wrong, 0);
}

/// The tile registers of bf16, too, have the kernel's shapes again when the callable is back. One row (decoding) and
/// several strips.
TEST(ScoreCallback, MayMultiplyBf16) {
  for (const std::int64_t rows : {1, 70}) {
    const Tensor q = normal({1, 2, rows, 34}, 1).to(Dtype::bf16), k = normal({1, 2, 300, 34}, 2).to(Dtype::bf16),
                 v = normal({1, 2, 300, 40}, 3).to(Dtype::bf16);
    const Tensor a = normal({24, 40}, 4).to(Dtype::bf16), b = normal({40, 24}, 5).to(Dtype::bf16),
                 product = matmul(a, b), expected = attention(q, k, v).output;
    std::atomic<int> wrong{0};
    const auto busy = [&](const ScoreTile&) {
      wrong += !same_bits(matmul(a, b), product);
      wrong += !same_bits(attention(q, k, v).output, expected);
    };
    EXPECT_TRUE(bits_equal(attention(q, k, v, {.score_callback = {busy, Align::top_left}}).output, expected));
    EXPECT_EQ(wrong, 0);
  }
}

TEST(ScoreCallback, MayHideAndWhatItSeesHiddenDoesNotMatter) {
  const Inputs in = inputs({1, 2, 70, 8}, {1, 2, 200, 8}, 8);
  const auto hide = [](const ScoreTile& tile) {
    tile.each([](auto s, auto i, auto j) { return j > i ? -std::numeric_limits<decltype(s)>::infinity() : s; });
  };
  const Tensor expected = run(in, {.mask = Mask::causal(Align::bottom_right)});
  EXPECT_TRUE(bits_equal(run(in, {.score_callback = {hide, Align::bottom_right}}), expected));
  const auto spoil = [](const ScoreTile& tile) {
    tile.each([](auto s, auto i, auto j) { return j > i ? std::numeric_limits<decltype(s)>::quiet_NaN() : s; });
  };
  EXPECT_TRUE(bits_equal(
      run(in, {.mask = Mask::causal(Align::bottom_right), .score_callback = {spoil, Align::bottom_right}}), expected));
}

}  // namespace
}  // namespace attn::testing
