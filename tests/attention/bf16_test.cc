// tests/attention/bf16_test.cc: a row in bf16 has the same bits alone, in a batch, padded, in prefill, decoding and on
// any threads.
#include <attn/attention.h>
#include <attn/autograd.h>
#include <attn/ops.h>
#include <attn/runtime.h>

#include "verify/inputs.h"

#include <gtest/gtest.h>

#include <limits>

namespace attn::testing {
namespace {

constexpr std::int64_t batch = 3, heads = 4, k_heads = 2, tokens = 330, dim = 24;

struct Bf16 : ::testing::Test {
  Tensor q = cases::integers({batch, heads, tokens, dim}, Dtype::bf16, 1),
         k = cases::integers({batch, k_heads, tokens, dim}, Dtype::bf16, 2);
  Tensor v = cases::integers({batch, k_heads, tokens, dim}, Dtype::bf16, 3);
  AttentionOptions causal{.mask = Mask::causal(Align::bottom_right)};
  Tensor all = attention(q, k, v, causal).output;
};

TEST_F(Bf16, AloneAndInABatch) {
  for (std::int64_t b = 0; b < batch; ++b)
    EXPECT_TRUE(same_bits(attention(q.narrow(0, b, 1), k.narrow(0, b, 1), v.narrow(0, b, 1), causal).output,
                          all.narrow(0, b, 1).contiguous()));
}

TEST_F(Bf16, PrefillAndDecoding) {
  for (const std::int64_t end : {std::int64_t{1}, std::int64_t{2}, std::int64_t{65}, std::int64_t{255},
                                 std::int64_t{256}, std::int64_t{257}, tokens}) {
    const Tensor row = attention(q.narrow(2, end - 1, 1), k.narrow(2, 0, end), v.narrow(2, 0, end), causal).output;
    EXPECT_TRUE(same_bits(row, all.narrow(2, end - 1, 1).contiguous())) << end;
  }
}

TEST_F(Bf16, PaddedOnTheRightWithNan) {
  const Tensor padding = full({batch, k_heads, 100, dim}, std::numeric_limits<double>::quiet_NaN(), Dtype::bf16);
  const AttentionOptions options{.mask = causal.mask, .key_lengths = full({batch}, tokens, Dtype::i64)};
  EXPECT_TRUE(same_bits(attention(q, cat({k, padding}, 2), cat({v, padding}, 2), options).output, all));
}

TEST_F(Bf16, HiddenNanIsSilentUnderDropout) {
  AttentionOptions options = causal;
  options.dropout_p = 0.25;
  options.dropout_seed = 5;
  const Tensor wild = v.clone();
  wild.narrow(2, tokens - 1, 1).fill_(std::numeric_limits<double>::quiet_NaN());
  const auto seeing_less = [](const Tensor& x) { return x.narrow(2, 0, tokens - 1).contiguous(); };
  EXPECT_TRUE(
      same_bits(seeing_less(attention(q, k, wild, options).output), seeing_less(attention(q, k, v, options).output)));
}

/// A key that nobody near it sees either has no score, and what a call before left in that place is none.
TEST_F(Bf16, HiddenNanIsSilentBetweenKeysThatAreSeen) {
  for (const std::int64_t rows : {1, 3})
    for (const double temperature : {1.0, 2.0}) {
      const Tensor sees = full({1, 1, rows, tokens}, 1, Dtype::boolean);
      sees.narrow(3, 20, 80).fill_(0);
      AttentionOptions options{.temperature = temperature};
      const auto attended = [&](double of_hidden) {
        const Tensor values = v.clone();
        values.narrow(2, 60, 1).fill_(of_hidden);
        const Tensor last = q.narrow(2, tokens - rows, rows);
        options.mask = {};
        attention(last, k, v, options);
        options.mask = Mask::attend(sees);
        return attention(last, k, values, options).output;
      };
      EXPECT_TRUE(same_bits(attended(std::numeric_limits<double>::quiet_NaN()), attended(0)))
          << rows << " rows, temperature " << temperature;
    }
}

TEST_F(Bf16, GroupedHeadsAreHeadsRepeated) {
  std::vector<Tensor> ks, vs;
  for (std::int64_t h = 0; h < heads; ++h) {
    ks.push_back(k.narrow(1, h / (heads / k_heads), 1));
    vs.push_back(v.narrow(1, h / (heads / k_heads), 1));
  }
  EXPECT_TRUE(same_bits(attention(q, cat(ks, 1), cat(vs, 1), causal).output, all));
}

TEST_F(Bf16, AnyNumberOfThreads) {
  const int before = num_threads();
  const Tensor one = cases::integers({1, heads, 1, dim}, Dtype::bf16, 4),
               long_k = cases::integers({1, k_heads, 3000, dim}, Dtype::bf16, 5);
  const Tensor decoded = attention(one, long_k, long_k).output;
  for (const int threads : {1, 2, 3, 8}) {
    set_num_threads(threads);
    EXPECT_TRUE(same_bits(attention(q, k, v, causal).output, all)) << threads;
    EXPECT_TRUE(same_bits(attention(one, long_k, long_k).output, decoded)) << threads;
  }
  set_num_threads(before);
}

// 1 / sqrt(D) is infinite there.
TEST_F(Bf16, ScoresOfNoColumnsAreZero) {
  const Tensor empty_q = q.narrow(3, 0, 0), empty_k = k.narrow(3, 0, 0);
  const AttentionResult ours = attention(empty_q, empty_k, v),
                        wide = attention(empty_q.to(Dtype::f32), empty_k.to(Dtype::f32), v.to(Dtype::f32));
  EXPECT_TRUE(allclose(ours.output.to(Dtype::f32), wide.output, 0x1p-7, 0x1p-7));
  EXPECT_TRUE(allclose(ours.logsumexp, wide.logsumexp));
  Tensor leaf = v.clone();
  leaf.requires_grad_();
  backward(attention(empty_q, empty_k, leaf).output.sum());
  EXPECT_FALSE(any(isnan(leaf.grad())));
}

// Two numbers are read as one of 32 bits, which then stands at an address that no multiple of 4 is: sanitizers look.
TEST_F(Bf16, RowsAtAnyEvenAddress) {
  const auto shifted = [](const Tensor& x) { return cat({x.narrow(3, 0, 1), x}, 3).narrow(3, 1, dim); };
  for (const std::int64_t rows : {std::int64_t{5}, std::int64_t{37}, tokens})
    EXPECT_TRUE(same_bits(attention(shifted(q).narrow(2, 0, rows), shifted(k), shifted(v)).output,
                          attention(q.narrow(2, 0, rows), k, v).output))
        << rows;
}

}  // namespace
}  // namespace attn::testing
