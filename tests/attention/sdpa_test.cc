// tests/attention/sdpa_test.cc: torch's function beyond the goldens: ranks, broadcasting, groups, dropout's stream,
// error texts.
#include "attention/internal.h"
#include "attention/truth.h"
#include "support/errors.h"
#include "support/golden.h"

#include <gtest/gtest.h>

namespace attn::testing {
namespace {

TEST(Sdpa, LeadingDimsBroadcastAtEveryRank) {
  const Tensor q = normal({2, 1, 3, 4, 5, 6}, 1), k = normal({2, 1, 4, 7, 6}, 2), v = normal({4, 7, 3}, 3),
               mask = gt(normal({3, 1, 5, 7}, 4), 0);
  const Tensor y = scaled_dot_product_attention(q, k, v, {.attn_mask = mask});
  ASSERT_EQ(y.sizes(), (Dims{2, 2, 3, 4, 5, 3}));
  for (std::int64_t a = 0; a < 2; ++a)
    for (std::int64_t b = 0; b < 2; ++b)
      for (std::int64_t c = 0; c < 3; ++c)
        EXPECT_TRUE(
            bits_equal(y[a][b][c], scaled_dot_product_attention(q[a][0][c], k[b][0], v, {.attn_mask = mask[c]})));
}

TEST(Sdpa, RanksMayDiffer) {
  const Tensor q = normal({5, 6}, 1), k = normal({2, 7, 6}, 2), v = normal({3, 1, 7, 4}, 3);
  const Tensor y = scaled_dot_product_attention(q, k, v);
  ASSERT_EQ(y.sizes(), (Dims{3, 2, 5, 4}));
  EXPECT_TRUE(bits_equal(y[1][1], scaled_dot_product_attention(q, k[1], v[1][0])));
}

TEST(Sdpa, GroupsAtRankFive) {
  const Tensor q = normal({2, 1, 4, 5, 6}, 1), k = normal({3, 2, 7, 6}, 2), v = normal({2, 3, 1, 7, 6}, 3);
  const Tensor y = scaled_dot_product_attention(q, k, v, {.is_causal = true, .enable_gqa = true});
  ASSERT_EQ(y.sizes(), (Dims{2, 3, 4, 5, 6}));
  for (std::int64_t h = 0; h < 4; ++h)
    EXPECT_TRUE(
        bits_equal(y[1][2][h], scaled_dot_product_attention(q[1][0][h], k[2][h / 2], v[1][2][0], {.is_causal = true})));
}

TEST(Sdpa, NothingToComputeGivesZerosOrNothing) {
  EXPECT_TRUE(
      same_bits(scaled_dot_product_attention(ones({2, 3, 4}), ones({2, 0, 4}), ones({2, 0, 5})), zeros({2, 3, 5})));
  EXPECT_EQ(scaled_dot_product_attention(ones({0, 2, 3, 4}), ones({0, 2, 5, 4}), ones({0, 2, 5, 4})).sizes(),
            (Dims{0, 2, 3, 4}));
  EXPECT_EQ(scaled_dot_product_attention(ones({0, 2, 2, 3, 4}), ones({1, 2, 5, 4}), ones({2, 5, 4})).sizes(),
            (Dims{0, 2, 2, 3, 4}));
  EXPECT_TRUE(all(isnan(scaled_dot_product_attention(ones({3, 4}), ones({5, 4}), ones({5, 4}), {.scale = INFINITY}))));
}

/// Weights, then torch's dropout on them, then times the values.
Tensor by_hand(const Tensor& q, const Tensor& k, const Tensor& v, double p, Generator& generator) {
  const Tensor weights = softmax(matmul(q, k.transpose(-2, -1)) / std::sqrt(static_cast<double>(q.size(-1))), -1);
  return matmul(dropout(weights, p, true, generator), v);
}

TEST(Sdpa, DropoutDrawsTorchsStreamRowByRow) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64}) {
    const Tensor q = normal({2, 3, 150, 4}, 1, dtype), k = normal({2, 3, 11, 4}, 2, dtype),
                 v = normal({2, 3, 11, 5}, 3, dtype);
    Generator ours(7), theirs(7);
    const Tensor y = scaled_dot_product_attention(q, k, v, {.dropout_p = 0.4, .generator = &ours});
    EXPECT_TRUE(within(y, by_hand(q, k, v, 0.4, theirs), dtype == Dtype::f32 ? 5e-6 : 1e-13));
    EXPECT_EQ(ours.u32(), theirs.u32()) << "the same numbers were used up";
    // a fifth dim: sub-calls one after another
    Generator again(7);
    const Tensor five = scaled_dot_product_attention(q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1),
                                                     {.dropout_p = 0.4, .generator = &again});
    EXPECT_TRUE(bits_equal(five.squeeze(1), y));
  }
}

TEST(Sdpa, DropoutOfAllOrNothingDrawsNothing) {
  const Tensor q = normal({1, 2, 3, 4}, 1);
  Generator generator(7), untouched(7);
  EXPECT_TRUE(
      same_bits(scaled_dot_product_attention(q, q, q, {.dropout_p = 1, .generator = &generator}), zeros({1, 2, 3, 4})));
  EXPECT_TRUE(bits_equal(scaled_dot_product_attention(q, q, q, {.dropout_p = 0, .generator = &generator}),
                         scaled_dot_product_attention(q, q, q)));
  EXPECT_EQ(generator.u32(), untouched.u32());
}

TEST(Sdpa, WeightsComeAfterDropoutAndTheirAverageToo) {
  const Tensor q = normal({2, 3, 70, 4}, 1), k = normal({2, 3, 9, 4}, 2);
  const AttentionResult clean = attention(q, k, k, {.weights = Weights::full});
  Generator a(5), b(5), c(5);
  const AttentionResult full =
      attention_call(q, k, k, {.weights = Weights::full}, {.dropout_p = 0.25, .generator = &a});
  EXPECT_TRUE(bits_equal(full.weights, dropout(clean.weights, 0.25, true, b)));
  EXPECT_TRUE(bits_equal(full.logsumexp, clean.logsumexp));
  const AttentionResult average =
      attention_call(q, k, k, {.weights = Weights::head_average}, {.dropout_p = 0.25, .generator = &c});
  EXPECT_TRUE(bits_equal(average.weights,
                         (full.weights.select(1, 0) + full.weights.select(1, 1) + full.weights.select(1, 2)) / 3));
  EXPECT_TRUE(bits_equal(average.output, full.output));
}

TEST(Sdpa, ErrorTexts) {
  const auto x = [](const Dims& sizes, Dtype dtype = Dtype::f32) { return zeros(sizes, dtype); };
  const std::string name = "scaled_dot_product_attention: ";
  EXPECT_EQ(error_of<ShapeError>([&] { scaled_dot_product_attention(x({4}), x({5, 4}), x({5, 4})); }),
            name + "query has shape [4]; it must have 2 or more dims");
  EXPECT_EQ(error_of<DtypeError>([&] { scaled_dot_product_attention(x({3, 4}), x({5, 4}, Dtype::f64), x({5, 4})); }),
            name + "key is f64; it must be f32 as query");
  EXPECT_EQ(error_of<DtypeError>([&] { scaled_dot_product_attention(x({3, 4}, Dtype::i64), x({5, 4}), x({5, 4})); }),
            name + "query is i64; it must be f32, f64, bf16 or f16");
  EXPECT_EQ(error_of<ShapeError>([&] { scaled_dot_product_attention(x({3, 4}), x({5, 3}), x({5, 4})); }),
            name + "key has shape [5, 3]; its last dim must be 4 to match query [3, 4]");
  EXPECT_EQ(error_of<ShapeError>([&] { scaled_dot_product_attention(x({3, 4}), x({5, 4}), x({6, 4})); }),
            name + "value has shape [6, 4]; its 6 rows must be 5 to match key [5, 4]");
  EXPECT_EQ(error_of<ShapeError>([&] {
              scaled_dot_product_attention(x({1, 6, 3, 2}), x({1, 4, 3, 2}), x({1, 4, 3, 2}), {.enable_gqa = true});
            }),
            name + "key has shape [1, 4, 3, 2]; its 4 heads must divide the 6 heads of query [1, 6, 3, 2]");
  const std::string gqa = " for the 4 of query [1, 4, 3, 2] need enable_gqa = true";
  EXPECT_EQ(
      error_of<ShapeError>([&] { scaled_dot_product_attention(x({1, 4, 3, 2}), x({1, 2, 3, 2}), x({1, 2, 3, 2})); }),
      name + "key has shape [1, 2, 3, 2]; its 2 heads" + gqa);
  EXPECT_EQ(
      error_of<ShapeError>([&] { scaled_dot_product_attention(x({1, 4, 3, 2}), x({1, 1, 3, 2}), x({1, 2, 3, 2})); }),
      name + "value has shape [1, 2, 3, 2]; its 2 heads" + gqa);
  EXPECT_EQ(error_of<ShapeError>(
                [&] { scaled_dot_product_attention(x({3, 2}), x({3, 2}), x({3, 2}), {.enable_gqa = true}); }),
            name + "enable_gqa with query [3, 2] and key [3, 2]; both must have 3 or more dims");
  EXPECT_EQ(error_of<ShapeError>([&] {
              scaled_dot_product_attention(x({1, 2, 3, 4}), x({1, 2, 5, 4}), x({1, 2, 5, 4}), {.attn_mask = x({4, 5})});
            }),
            name + "attn_mask has shape [4, 5]; it must broadcast to the scores [1, 2, 3, 5]");
  EXPECT_EQ(error_of<DtypeError>([&] {
              scaled_dot_product_attention(x({3, 4}), x({5, 4}), x({5, 4}), {.attn_mask = x({3, 5}, Dtype::f64)});
            }),
            name + "attn_mask is f64; it must be bool or f32 as query");
  EXPECT_EQ(
      error_of<ValueError>([&] { scaled_dot_product_attention(x({3, 4}), x({5, 4}), x({5, 4}), {.dropout_p = 1.5}); }),
      name + "dropout_p is 1.5; it must be from 0 to 1");
  EXPECT_EQ(error_of<ValueError>([&] { scaled_dot_product_attention({}, x({5, 4}), x({5, 4})); }),
            name + "query is undefined");
}

}  // namespace
}  // namespace attn::testing
