// tests/attention/relative_product_errors_test.cc: the texts of relative products, and of mistakes with them.
#include <attn/attention_jvp.h>
#include <attn/ops.h>

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

}  // namespace
}  // namespace attn::testing
