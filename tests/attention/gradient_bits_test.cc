// tests/attention/gradient_bits_test.cc: gradients have the same bits on any number of threads and in any batch, do not
// depend on what is hidden, and need little memory.
#include <attn/runtime.h>

#include "attention/gradient_trial.h"
#include "attention/truth.h"
#include "runtime/memory.h"
#include "support/golden.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace attn::testing {
namespace {

Trial f32_setup(const Dims& q, const Dims& kv) {
  return {
      .q = normal(q, 1), .k = normal(kv, 2), .v = normal(kv, 3), .options = {}, .dropout = 0, .doutput = normal(q, 4)};
}

void expect_same_bits(const AttentionGradients& a, const AttentionGradients& b) {
  EXPECT_TRUE(bits_equal(a.q, b.q));
  EXPECT_TRUE(bits_equal(a.k, b.k));
  EXPECT_TRUE(bits_equal(a.v, b.v));
  if (b.sinks.defined()) { EXPECT_TRUE(bits_equal(a.sinks, b.sinks)); }
  for (std::size_t n = 0; n < b.bias.size(); ++n) EXPECT_TRUE(bits_equal(a.bias[n], b.bias[n]));
}

TEST(GradientBits, HasTheSameBitsOnAnyNumberOfThreads) {
  const int before = num_threads();
  for (const Dims& q : {Dims{1, 1, 700, 32}, Dims{1, 3, 300, 32}, Dims{1, 8, 130, 32}}) {
    Trial s = f32_setup(q, {1, q[1] % 2 == 0 ? q[1] / 2 : 1, 520, 32});
    s.options.mask = Mask::causal(Align::bottom_right) | Mask::window(-1, 3, Align::top_left);
    s.options.bias = Bias::dense(normal({q[2], 520}, 6)) + Bias::alibi(Bias::alibi_slopes(q[1]), Align::bottom_right);
    s.dropout = q[1] == 3 ? 0.2 : 0;
    set_num_threads(1);
    const AttentionGradients alone = gradients(s);
    for (const int threads : {2, 3, 8}) {
      set_num_threads(threads);
      SCOPED_TRACE(threads);
      expect_same_bits(gradients(s), alone);
    }
  }
  set_num_threads(before);
}

/// Every way to share a bias: units side by side, one behind the other, or steps in a wave; also where a head is
/// decided again.
TEST(GradientBits, OfABiasThatIsSharedHasTheSameBitsOnAnyNumberOfThreads) {
  const int before = num_threads();
  const std::int64_t rows = 200, keys = 150;
  for (const std::int64_t key_heads : {4, 2, 1})
    for (const Dims& bias :
         {Dims{rows, keys}, Dims{1, 4, rows, keys}, Dims{3, 1, rows, keys}, Dims{1, 1, 1, keys}, Dims{3, 1, 1, keys},
          Dims{1, 4, 1, keys}, Dims{4, rows, 1}, Dims{rows, 1}, Dims{4, 1, 1}, Dims{1}}) {
      SCOPED_TRACE(to_string(bias));
      Trial s = f32_setup({3, 4, rows, 16}, {3, key_heads, keys, 16});
      s.options.mask = Mask::causal(Align::bottom_right);
      s.options.key_lengths = tensor<std::int64_t>({keys, 70, keys});
      // hidden, and 0 does not silence it
      s.k.select(0, 1).narrow(1, 70, 1).fill_(std::numeric_limits<double>::quiet_NaN());
      s.options.bias = Bias::dense(normal(bias, 6)) + Bias::dense(normal({rows, keys}, 7));
      set_num_threads(1);
      const AttentionGradients alone = gradients(s);
      for (int repeat = 0; repeat < 3; ++repeat)
        for (const int threads : {2, 3, 8}) {
          set_num_threads(threads);
          expect_same_bits(gradients(s), alone);
        }
    }
  set_num_threads(before);
}

/// The first key block that a row sees shrinks from one block of rows to the next: a step may be done while the one
/// before has keys left.
TEST(GradientBits, HandsKeysOnInOrderWhereRowsSeeFewerAndFewerKeys) {
  const int before = num_threads();
  Trial s = f32_setup({1, 1, 640, 16}, {1, 1, 640, 16});
  s.options.mask = Mask::causal(Align::top_left) & ~Mask::window(100, -1, Align::top_left);
  for (const Mask& mask : {s.options.mask, ~Mask::causal(Align::top_left), Mask::prefix(70)}) {
    s.options.mask = mask;
    set_num_threads(1);
    const AttentionGradients alone = gradients(s);
    for (int repeat = 0; repeat < 20; ++repeat) {
      set_num_threads(2 + 2 * (repeat % 2));
      expect_same_bits(gradients(s), alone);
    }
  }
  set_num_threads(before);
}

TEST(GradientBits, OfABatchItemDoesNotDependOnItsBatchOrPadding) {
  Trial both = f32_setup({2, 2, 150, 16}, {2, 2, 150, 16});
  both.options.mask = Mask::causal(Align::top_left);
  both.options.query_lengths = integers({150, 90});
  both.options.key_lengths = integers({150, 90});
  const AttentionGradients g = gradients(both);
  const auto second = [](const Tensor& x) { return x.narrow(0, 1, 1).narrow(2, 0, 90).contiguous(); };
  Trial one{.q = second(both.q),
            .k = second(both.k),
            .v = second(both.v),
            .options = {},
            .dropout = 0,
            .doutput = second(both.doutput)};
  one.options.mask = both.options.mask;
  const AttentionGradients alone = gradients(one);
  EXPECT_TRUE(bits_equal(second(g.q), alone.q));
  EXPECT_TRUE(bits_equal(second(g.k), alone.k));
  EXPECT_TRUE(bits_equal(second(g.v), alone.v));
  EXPECT_EQ(sum(abs(g.k.select(0, 1).narrow(1, 90, 60))).item(), 0);
}

TEST(GradientBits, HiddenKeysAndRowsThatSeeNothingMayHoldAnything) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  for (const Dims& sizes : {Dims{1, 2, 140, 16}, Dims{1, 1, 260, 16}}) {  // heads, and rows in a wave
    Trial s = f32_setup(sizes, sizes);
    const std::int64_t rows = sizes[2];
    Tensor allowed = ones({rows, rows}, Dtype::boolean);
    allowed.slice(1, 100, 110).fill_(0);  // keys 100 ... 109 are seen by nobody
    allowed.slice(0, 30, 35).fill_(0);    // rows 30 ... 34 see nothing
    s.options.mask = Mask::attend(allowed) & Mask::causal();
    s.options.sinks = normal({sizes[1]}, 8);
    const AttentionGradients clean = gradients(s);
    EXPECT_EQ(sum(abs(clean.q.slice(2, 30, 35))).item(), 0);
    EXPECT_EQ(sum(abs(clean.k.slice(2, 100, 110))).item() + sum(abs(clean.v.slice(2, 100, 110))).item(), 0);
    for (const double what : {nan, infinity, -infinity}) {
      Trial dirty = s;
      for (Tensor Trial::* x : {&Trial::k, &Trial::v}) {
        (dirty.*x) = (s.*x).clone();
        (dirty.*x).slice(2, 100, 110).fill_(what);
      }
      for (Tensor Trial::* x : {&Trial::q, &Trial::doutput}) {
        (dirty.*x) = (s.*x).clone();
        (dirty.*x).slice(2, 30, 35).fill_(what);
      }
      expect_same_bits(gradients(dirty), clean);
    }
  }
}

TEST(GradientBits, ANanRowReachesOnlyTheKeysItSees) {
  Trial s = f32_setup({1, 1, 100, 8}, {1, 1, 100, 8});
  s.options.mask = Mask::causal();
  s.q.narrow(2, 50, 1).fill_(std::numeric_limits<double>::quiet_NaN());
  const AttentionGradients g = gradients(s);
  for (std::int64_t n = 0; n < 100; ++n) {
    const auto is_nan = [&](const Tensor& x) { return std::isnan(x.narrow(2, n, 1).sum().item()); };
    EXPECT_EQ(is_nan(g.q), n == 50) << n;
    EXPECT_EQ(is_nan(g.k), n <= 50) << n;
    EXPECT_EQ(is_nan(g.v), n <= 50) << n;
  }
}

TEST(GradientBits, MemoryStaysFarUnderTheMatrixOfWeights) {
  const Dims sizes{1, 8, 8192, 64};
  const Trial s = f32_setup(sizes, sizes);
  runtime::reset_peak();
  const std::size_t before = runtime::allocated_bytes();
  const AttentionGradients g = gradients(s);
  const std::size_t results = 4 * static_cast<std::size_t>(g.q.numel()) * sizeof(float),
                    matrix = std::size_t{8192} * 8192 * sizeof(float);
  EXPECT_LT(runtime::peak_bytes() - before, results + (std::size_t{8} << 20));
  EXPECT_LT(results + (std::size_t{8} << 20), matrix / 3);  // of one of the 8 heads
}

}  // namespace
}  // namespace attn::testing
