// tests/attention/relative_product_errors_test.cc: the texts of relative products, and of mistakes with them.
#include <attn/attention_jvp.h>
#include <attn/cache.h>
#include <attn/ops.h>

#include "attention/lower.h"
#include "attention/truth.h"
#include "support/errors.h"

#include <gtest/gtest.h>

namespace attn::testing {
namespace {

TEST(RelativeProductErrors, TermsAreShownAsTheyWereMade) {
  EXPECT_EQ(Bias::relative_product(zeros({2, 5, 8}), RelativeIndex::distance(2, 2)).to_string(),
            "relative_product(f32 [2, 5, 8], distance(2, 2))");
  EXPECT_EQ(
      Bias::relative_product(zeros({5, 8}), RelativeIndex::distance(2, 2).reversed(), {.of_keys = true}).to_string(),
      "relative_product(f32 [5, 8], distance(2, 2).reversed(), of keys)");
  EXPECT_EQ(RelativeIndex::distance(1, 2).reversed().reversed().to_string(), "distance(1, 2)");
}

TEST(RelativeProductErrors, MistakesNameWhatWasGivenAndWhatIsNeeded) {
  const Tensor q = zeros({1, 2, 4, 8}), table = zeros({2, 5, 8});
  const RelativeIndex five = RelativeIndex::distance(2, 2);
  const auto of = [&](const Bias& bias, AttentionOptions options = {}) {
    options.bias = bias;
    return attention(q, q, q, options);
  };
  EXPECT_EQ(error_of<ShapeError>([&] { Bias::relative_product(zeros({4, 8}), five); }),
            "Bias::relative_product: the table has shape [4, 8]; distance(2, 2) needs [Hq, 5, D] or [5, D]");
  EXPECT_EQ(
      error_of<ShapeError>([&] { of(Bias::relative_product(zeros({3, 5, 8}), five)); }),
      "attention: the table of a relative product has shape [3, 5, 8]; its first dim must be the 2 heads of q, or "
      "1");
  EXPECT_EQ(error_of<ShapeError>([&] { of(Bias::relative_product(zeros({5, 7}), five)); }),
            "attention: the table of a relative product has rows of 7; they must have the 8 columns of q");
  EXPECT_EQ(error_of<ShapeError>([&] { of(Bias::relative_product(table, five, {.operand = zeros({1, 2, 3, 8})})); }),
            "attention: the operand of a relative product has shape [1, 2, 3, 8]; it must be [1, 2, 4, 8] as q and the "
            "table");
  EXPECT_EQ(error_of<DtypeError>([&] { of(Bias::relative_product(table.to(Dtype::f64), five)); }),
            "attention: a bias is f64; it must be f32 as q");
  EXPECT_EQ(
      error_of<ValueError>([&] { of(Bias::relative_product(table, five), {.score = Score::general(zeros({8, 8}))}); }),
      "attention: a relative product of q needs the (scaled) dot product as score, or an operand");
  EXPECT_EQ(error_of<ValueError>([&] { RelativeIndex::log_buckets(7, 40); }),
            "RelativeIndex::log_buckets: buckets is 7; it must be even");
  EXPECT_EQ(error_of<ValueError>([&] { RelativeIndex::distance(-1, 0); }),
            "RelativeIndex::distance: before is -1; it must be from 0 to 1073741824");
  EXPECT_EQ(
      error_of<ValueError>([&] { attention_jvp(q, q, q, {.q = q}, {.bias = Bias::relative_product(table, five)}); }),
      "attention_jvp: a relative product is given; it has no tangent here");
}

/// A picture of 3 x 4 pixels; `index` of its rows unless it is given.
void attend_picture(std::int64_t rows, std::int64_t keys, const AttentionOptions& given, Align align,
                    std::optional<RelativeIndex> index = std::nullopt) {
  const RelativeIndex used = index.value_or(RelativeIndex::picture_rows(3, 4));
  AttentionOptions options = given;
  options.bias = Bias::relative_product(zeros({used.rows(), 8}), used, {.align = align});
  const std::int64_t batch = given.cu_seqlens_q.defined() ? 1 : 2;
  attention(zeros({batch, 1, rows, 8}), zeros({batch, 1, keys, 8}), zeros({batch, 1, keys, 8}), options);
}

TEST(RelativeProductErrors, PositionsBeyondAPictureAreRefused) {
  EXPECT_EQ(error_of<ShapeError>([&] { attend_picture(13, 13, {}, Align::unset); }),
            "attention: batch item 0 has rows at positions 0 to 12 and keys at 0 to 12; picture_rows(3, 4) has 3 x 4 = "
            "12 pixels, from position 0 to 11");
  EXPECT_EQ(error_of<ShapeError>(
                [&] { attend_picture(4, 13, {}, Align::bottom_right, RelativeIndex::picture_rows(3, 4).reversed()); }),
            "attention: batch item 0 has rows at positions 9 to 12 and keys at 0 to 12; picture_rows(3, 4).reversed() "
            "has 3 x 4 = 12 pixels, from position 0 to 11");
  EXPECT_EQ(error_of<ShapeError>([&] { attend_picture(5, 4, {}, Align::bottom_right); }),
            "attention: batch item 0 has rows at positions -1 to 3 and keys at 0 to 3; picture_rows(3, 4) has 3 x 4 = "
            "12 pixels, from position 0 to 11");
  EXPECT_EQ(
      error_of<ShapeError>([&] { attend_picture(5, 4, {}, Align::bottom_right, RelativeIndex::picture_columns(4)); }),
      "attention: batch item 0 has rows at positions -1 to 3 and keys at 0 to 3; picture_columns(4) has pixels "
      "from position 0");
  EXPECT_EQ(error_of<ShapeError>([&] { attend_picture(4, 12, {.query_start = integers({8, 9})}, Align::unset); }),
            "attention: batch item 1 has rows at positions 9 to 12 and keys at 0 to 11; picture_rows(3, 4) has 3 x 4 = "
            "12 pixels, from position 0 to 11");
  EXPECT_EQ(error_of<ShapeError>([&] { attend_picture(12, 13, {.key_lengths = integers({12, 13})}, Align::top_left); }),
            "attention: batch item 1 has rows at positions 0 to 11 and keys at 0 to 12; picture_rows(3, 4) has 3 x 4 = "
            "12 pixels, from position 0 to 11");
  EXPECT_EQ(
      error_of<ShapeError>([&] { attend_picture(25, 25, {.cu_seqlens_q = integers({0, 12, 25})}, Align::unset); }),
      "attention: sequence 1 has rows at positions 0 to 12 and keys at 0 to 12; picture_rows(3, 4) has 3 x 4 = "
      "12 pixels, from position 0 to 11");
}

TEST(RelativeProductErrors, PositionsInAPictureAreNot) {
  EXPECT_NO_THROW(attend_picture(12, 12, {}, Align::unset));
  EXPECT_NO_THROW(attend_picture(5, 7, {}, Align::bottom_right));  // a part of the picture, of the keys too
  EXPECT_NO_THROW(attend_picture(24, 24, {.cu_seqlens_q = integers({0, 12, 12, 24})}, Align::unset));
  // items with fewer rows and keys than the tensors have, or none
  EXPECT_NO_THROW(
      attend_picture(20, 20, {.query_lengths = integers({12, 0}), .key_lengths = integers({12, 20})}, Align::top_left));
  EXPECT_NO_THROW(
      attend_picture(12, 20, {.key_lengths = integers({12, 20}), .key_start = integers({0, 8})}, Align::top_left));
  EXPECT_NO_THROW(attend_picture(100, 100, {}, Align::unset, RelativeIndex::picture_columns(7)));
}

TEST(RelativeProductErrors, RowsBehindACacheStayInThePicture) {
  KvCache cache({.key_heads = 1, .head_dim = 8, .value_dim = 8, .page_rows = 16, .pages = 2});
  const KvSequence sequence = cache.create();
  const RelativeIndex index = RelativeIndex::picture_rows(3, 4);
  const auto step = [&] {
    cache.append(sequence, zeros({1, 1, 8}), zeros({1, 1, 8}));
    attention_cached(zeros({1, 1, 1, 8}), cache, {sequence},
                     {.bias = Bias::relative_product(zeros({index.rows(), 8}), index)});
  };
  for (int n = 0; n < 12; ++n) step();
  EXPECT_EQ(error_of<ShapeError>(step),
            "attention_cached: batch item 0 has rows at positions 12 to 12 and keys at 0 to 12; picture_rows(3, 4) has "
            "3 x 4 = 12 pixels, from position 0 to 11");
}

TEST(RelativeProductErrors, WhatWasExchangedIsCheckedAgain) {
  const Tensor q = zeros({1, 1, 4, 8});
  const Bias bias = Bias::relative_product(zeros({5, 8}), RelativeIndex::distance(2, 2), {.operand = q});
  const auto with = [&](const Tensor& table, const Tensor& operand) {
    return error_of<ShapeError>([&] { attention(q, q, q, {.bias = with_values(bias.terms()[0], table, operand)}); });
  };
  EXPECT_EQ(with(zeros({4, 8}), q), "attention: the table has shape [4, 8]; distance(2, 2) needs [Hq, 5, D] or [5, D]");
  EXPECT_EQ(with(zeros({8}), q), "attention: the table has shape [8]; distance(2, 2) needs [Hq, 5, D] or [5, D]");
  EXPECT_EQ(with(zeros({5, 8}), zeros({4, 8})),
            "attention: the operand of a relative product has shape [4, 8]; it must be [B, H, T, D], or of the rank of "
            "q, 4");
}

TEST(RelativeProductErrors, AScaleIsFiniteInTheTypeOfTheSums) {
  const Tensor q = zeros({1, 1, 4, 8}), table = zeros({5, 8});
  const auto run = [&](Dtype dtype) {
    attention(q.to(dtype), q.to(dtype), q.to(dtype),
              {.bias = Bias::relative_product(table.to(dtype), RelativeIndex::distance(2, 2), {.scale = 1e300})});
  };
  EXPECT_EQ(error_of<ValueError>([&] { run(Dtype::f32); }),
            "attention: the scale of a relative product is 1e+300; it must be finite in f32");
  run(Dtype::f64);
}

TEST(RelativeProductErrors, CallsOfNothingAreAllowed) {
  const RelativeIndex index = RelativeIndex::distance(2, 2);
  for (const auto& [batch, heads, rows, keys, dim] :
       {std::tuple{0, 2, 4, 4, 8}, {1, 0, 4, 4, 8}, {1, 2, 0, 4, 8}, {1, 2, 4, 0, 8}, {1, 2, 4, 4, 0}})
    for (const bool of_keys : {false, true}) {
      const Tensor q = ones({batch, heads, rows, dim}).requires_grad_(),
                   k = ones({batch, heads, keys, dim}).requires_grad_(),
                   v = ones({batch, heads, keys, 3}).requires_grad_(), table = ones({heads, 5, dim}).requires_grad_();
      const Tensor y =
          attention(q, k, v,
                    {.scale = 1,
                     .bias = Bias::relative_product(table, index, {.of_keys = of_keys, .align = Align::top_left})})
              .output;
      y.backward(ones(y.sizes()));
      EXPECT_EQ(table.grad().sizes(), table.sizes());
      EXPECT_EQ(q.grad().sizes(), q.sizes());
    }
}

}  // namespace
}  // namespace attn::testing
