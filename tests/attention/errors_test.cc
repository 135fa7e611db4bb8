// tests/attention/errors_test.cc: every error of attention(), its exact text, and that nothing was written.
#include <attn/attention.h>
#include <attn/ops.h>

#include "support/errors.h"

#include <gtest/gtest.h>

#include <cmath>

namespace attn::testing {
namespace {

const Tensor q = ones({2, 4, 8, 64}), k = ones({2, 4, 8, 64}), v = ones({2, 4, 8, 64});

template <typename E>
std::string text(const Tensor& a, const Tensor& b, const Tensor& c, const AttentionOptions& options = {}) {
  return error_of<E>([&] { attention(a, b, c, options); });
}
template <typename E>
std::string text(AttentionOptions options) {
  const Tensor out = full({2, 4, 8, 64}, 7.0);
  if (!options.out.defined()) options.out = out;
  const std::string result = text<E>(q, k, v, options);
  EXPECT_TRUE(same_bits(out, full({2, 4, 8, 64}, 7.0))) << "nothing is written when an error is thrown";
  return result;
}

TEST(Errors, Tensors) {
  EXPECT_EQ(text<ShapeError>(q, ones({2, 4, 8, 32}), v),
            "attention: k has shape [2, 4, 8, 32]; its last dim must be 64 to match q [2, 4, 8, 64]");
  EXPECT_EQ(text<ShapeError>(q, k, ones({2, 4, 9, 64})),
            "attention: v has shape [2, 4, 9, 64]; its 9 rows must be 8 to match k [2, 4, 8, 64]");
  EXPECT_EQ(text<ShapeError>(q, ones({3, 4, 8, 64}), v),
            "attention: k has shape [3, 4, 8, 64]; its batch must be 2 to match q [2, 4, 8, 64]");
  EXPECT_EQ(text<ShapeError>(q, ones({2, 3, 8, 64}), v),
            "attention: k has shape [2, 3, 8, 64]; its 3 heads must divide the 4 heads of q [2, 4, 8, 64]");
  EXPECT_EQ(text<ShapeError>(q, k, ones({2, 0, 8, 64})),
            "attention: v has shape [2, 0, 8, 64]; its 0 heads must divide the 4 heads of q [2, 4, 8, 64]");
  EXPECT_EQ(text<ShapeError>(q, ones({2, 8, 64}), v),
            "attention: k has shape [2, 8, 64]; its rank must be 4 to match q [2, 4, 8, 64]");
  EXPECT_EQ(text<ShapeError>(ones({64}), k, v),
            "attention: q has shape [64]; it must be [B, H, T, D], [B, T, D] or [T, D]");
  EXPECT_EQ(text<DtypeError>(q, k.to(Dtype::f64), v), "attention: k is f64; it must be f32 as q");
  EXPECT_EQ(text<DtypeError>(q.to(Dtype::i64), k, v), "attention: q is i64; it must be f32, f64, bf16 or f16");
  EXPECT_EQ(text<ValueError>(q, {}, v), "attention: k is undefined");
}

TEST(Errors, Options) {
  EXPECT_EQ(text<ValueError>({.temperature = 0}), "attention: temperature is 0; it must be above 0, and finite");
  EXPECT_EQ(text<ValueError>({.temperature = NAN}), "attention: temperature is nan; it must be above 0, and finite");
  EXPECT_EQ(text<ValueError>({.temperature = INFINITY}),
            "attention: temperature is inf; it must be above 0, and finite");
  EXPECT_EQ(text<ValueError>({.softcap = -1}),
            "attention: softcap is -1; it must be above 0 and finite, or 0 for none");
  for (const double wrong : {double{NAN}, double{INFINITY}, -double{INFINITY}, 1e300}) {
    // the last is infinite in f32
    const std::string shown = std::isnan(wrong) ? "nan" : wrong > 1e308 ? "inf" : wrong < 0 ? "-inf" : "1e+300";
    EXPECT_EQ(text<ValueError>({.scale = wrong}), "attention: scale is " + shown + "; it must be finite");
    EXPECT_EQ(text<ValueError>({.temperature = wrong}),
              "attention: temperature is " + shown + "; it must be above 0, and finite");
    EXPECT_EQ(text<ValueError>({.softcap = wrong}),
              "attention: softcap is " + shown + "; it must be above 0 and finite, or 0 for none");
    EXPECT_EQ(text<ValueError>({.dropout_p = wrong}), "attention: dropout_p is " + shown + "; it must be from 0 to 1");
    EXPECT_EQ(error_of<ValueError>([&] { attention_scores(q, k, {.scale = wrong}); }),
              "attention_scores: scale is " + shown + "; it must be finite");
  }
  // 0 in f32
  EXPECT_EQ(text<ValueError>({.temperature = 1e-300}),
            "attention: temperature is 1e-300; it must be above 0, and finite");
  EXPECT_EQ(text<ShapeError>({.sinks = ones({3})}),
            "attention: sinks have shape [3]; they must be [4], one for each query head");
  EXPECT_EQ(text<DtypeError>({.sinks = ones({4}, Dtype::i64)}), "attention: sinks are i64; they must be floating");
  EXPECT_EQ(text<ValueError>({.key_lengths = tensor<std::int64_t>({8, 9})}),
            "attention: key_lengths[1] is 9; it must be from 0 to 8, the number of keys");
  EXPECT_EQ(text<ValueError>({.query_lengths = tensor<std::int64_t>({-1, 8})}),
            "attention: query_lengths[0] is -1; it must be from 0 to 8, the number of rows");
  EXPECT_EQ(text<DtypeError>({.key_start = ones({2})}), "attention: key_start is f32; it must be i64 or i32");
  EXPECT_EQ(text<ShapeError>({.query_start = tensor<std::int64_t>({1})}),
            "attention: query_start has shape [1]; it must be [2], one for each batch item");
  EXPECT_EQ(text<ShapeError>({.out = ones({2, 4, 8, 3})}),
            "attention: out has shape [2, 4, 8, 3]; it must be [2, 4, 8, 64]");
  EXPECT_EQ(text<DtypeError>({.out = ones({2, 4, 8, 64}, Dtype::f64)}), "attention: out is f64; it must be f32");
}

TEST(Errors, MoreSlopesThanCanBeCounted) {
  EXPECT_EQ(error_of<ShapeError>([] { Bias::alibi_slopes(std::int64_t{1} << 62); }),
            "empty: sizes [4611686018427387904] need more bytes than 64 bits count");
}

TEST(Errors, MasksAndBiases) {
  EXPECT_EQ(text<ShapeError>({.mask = Mask::attend(ones({8, 7}, Dtype::boolean))}),
            "attention: the mask attend has shape [8, 7]; it must broadcast to the scores [2, 4, 8, 8]");
  EXPECT_EQ(text<ShapeError>({.mask = Mask::prefix(ones({3}, Dtype::i64))}),
            "attention: the mask prefix has n of shape [3]; it must be [2], one for each batch item");
  EXPECT_EQ(text<ShapeError>({.bias = Bias::dense(ones({3, 1, 1}))}),
            "attention: a dense bias has shape [3, 1, 1]; it must broadcast to the scores [2, 4, 8, 8]");
  EXPECT_EQ(text<DtypeError>({.bias = Bias::dense(ones({8, 8}, Dtype::f64))}),
            "attention: a bias is f64; it must be f32 as q");
  EXPECT_EQ(text<ShapeError>({.bias = Bias::alibi(ones({3}))}),
            "attention: the bias alibi has shape [3]; it needs one value for each of 4 query heads");
  EXPECT_EQ(text<ShapeError>({.bias = Bias::relative(ones({32, 3}))}),
            "attention: the bias relative has shape [32, 3]; it needs one value for each of 4 query heads");
  EXPECT_EQ(error_of<ShapeError>([] {
              attention(ones({2, 3, 4}), ones({2, 5, 4}), ones({2, 5, 4}),
                        {.mask = Mask::attend(ones({3, 3, 5}, Dtype::boolean))});
            }),
            "attention: the mask attend has shape [3, 3, 5]; it must broadcast to the scores [2, 3, 5]");
  const std::string both =
      error_of<ShapeError>([] { attention(ones({2, 4}), ones({3, 4}), ones({3, 4}), {.mask = Mask::causal()}); });
  EXPECT_EQ(both.substr(0, both.find('\n')),
            "attention: causal does not say how 2 rows stand against 3 keys; it needs an alignment, top_left or "
            "bottom_right, as in causal(bottom_right)");
  EXPECT_EQ(error_of<DtypeError>([] { Bias::dense(ones({2}, Dtype::boolean)); }),
            "Bias::dense: values are bool; they must be f32, f64, bf16 or f16");
  EXPECT_EQ(
      error_of<ShapeError>([] { Bias::relative(ones({5, 4})); }),
      "Bias::relative: the table has shape [5, 4]; it must be [buckets, Hq] with an even number of at least 4 buckets");
  EXPECT_EQ(error_of<ValueError>([] { Bias::relative(ones({32, 4}), true, 8); }),
            "Bias::relative: max_distance is 8; it must be above 8, the distances that have a bucket of their own, and "
            "at most 65536");
}

TEST(Errors, Scores) {
  EXPECT_EQ(text<ValueError>({.score = Score::dot(), .scale = 0.5}),
            "attention: scale is 0.5 beside the score dot; only scaled_dot has a scale");
  EXPECT_EQ(text<ShapeError>({.score = Score::general(ones({64, 63}))}),
            "attention: the score's w has shape [64, 63]; it must be [64, 64] or [4, 64, 64]");
  EXPECT_EQ(text<ShapeError>({.score = Score::additive(ones({5, 64}), ones({6, 64}), ones({5}))}),
            "attention: the score's w_k has shape [6, 64]; it must be [5, 64]");
  EXPECT_EQ(text<ShapeError>({.score = Score::additive(ones({5, 64}), ones({5, 64}), ones({6}))}),
            "attention: the score's w has shape [6]; it must be [5] or [1, 5]");
  EXPECT_EQ(text<DtypeError>({.score = Score::additive(ones({5, 64}), ones({5, 64}, Dtype::f64), ones({5}))}),
            "attention: the score's w_k is f64; it must be f32 as q");
  EXPECT_EQ(error_of<ShapeError>([] { attention_scores(ones({2, 4}), ones({2, 3})); }),
            "attention_scores: k has shape [2, 3]; its last dim must be 4 to match q [2, 4]");
}

}  // namespace
}  // namespace attn::testing
