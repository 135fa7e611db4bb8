// tests/explain/steps_test.cc: the steps of an explanation are the tutorial's numbers and attention's own bits.
#include "explain/words.h"
#include "support/errors.h"
#include "support/golden.h"

#include <attn/explain.h>
#include <attn/ops.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace attn {
namespace {

using testing::bits_equal;
using testing::error_of;
using testing::golden;
using testing::within;

const std::string kSentence = "Life is short, eat dessert first";

Tensor tutorial(const std::string& name, Dtype dtype = Dtype::f32) {
  for (const auto& step : golden("000.json").at("steps"))
    if (step.at("name") == name)
      return testing::golden_tensor(step.at("values"), Dims(step.at("shape").get<std::vector<std::int64_t>>()), dtype);
  throw std::runtime_error("no step " + name);
}

constexpr double kFourDecimals = 1.01e-4;  // the tutorial printed four, some of them rounded from sums in another order

TEST(Explain, DefaultsAreTheFirstTutorial) {
  const Explanation told = explain(kSentence);
  EXPECT_EQ(told.step("ids").values.to_int_vector(), tutorial("token_indices", Dtype::i64).to_int_vector());
  EXPECT_TRUE(within(told.step("x").values, tutorial("embedded_sentence"), kFourDecimals));
  EXPECT_TRUE(within(told.step("q").values, tutorial("queries"), kFourDecimals));
  EXPECT_TRUE(within(told.step("k").values, tutorial("keys"), kFourDecimals));
  EXPECT_TRUE(within(told.step("v").values, tutorial("values"), kFourDecimals));
  EXPECT_TRUE(within(told.step("scores").values, tutorial("attention_scores"), kFourDecimals));
  EXPECT_TRUE(within(told.step("weights").values.select(0, 2), tutorial("attention_weights_2"), kFourDecimals));
  EXPECT_TRUE(within(told.step("context").values, tutorial("self_attention"), kFourDecimals));
}

TEST(Explain, HeadsAreTheTutorialsOnesJoined) {
  ExplainOptions options;
  options.heads = 4;
  options.dv = 1;
  EXPECT_TRUE(within(explain(kSentence, options).step("joined").values, tutorial("multi_head_4"), kFourDecimals));
}

TEST(Explain, ContextAndWeightsAreAttentionsBits) {
  for (const Score::Kind kind :
       {Score::Kind::scaled_dot, Score::Kind::dot, Score::Kind::general, Score::Kind::additive}) {
    ExplainOptions options;
    options.score = kind;
    options.mask = Mask::causal();
    const Explanation told = explain(kSentence, options);
    AttentionOptions call;
    call.mask = options.mask;
    call.weights = Weights::full;
    const auto parameter = [&](const std::string& name) {
      for (const ExplainStep& step : told.parameters)
        if (step.name == name) return step.values;
      return Tensor();
    };
    if (kind == Score::Kind::dot) call.score = Score::dot();
    if (kind == Score::Kind::general) call.score = Score::general(parameter("score_w"));
    if (kind == Score::Kind::additive)
      call.score =
          Score::additive(parameter("score_w_query"), parameter("score_w_key"), parameter("score_w").reshape({2}));
    const Tensor &q = told.step("q").values, &k = told.step("k").values, &v = told.step("v").values;
    const AttentionResult result = attention(q, k, v, call);
    EXPECT_TRUE(bits_equal(told.step("context").values, result.output.reshape({6, 4})));
    EXPECT_TRUE(bits_equal(told.step("weights").values, result.weights.reshape({6, 6})));
    const std::string scored = kind == Score::Kind::scaled_dot ? "scaled" : "scores";
    EXPECT_TRUE(bits_equal(told.step(scored).values, attention_scores(q, k, call).reshape({6, 6})));
  }
}

TEST(Explain, CausalHidesWhatIsLater) {
  ExplainOptions options;
  options.mask = Mask::causal();
  const Explanation told = explain(kSentence, options);
  const ExplainStep& weights = told.step("weights");
  for (std::int64_t i = 0; i < 6; ++i)
    for (std::int64_t j = 0; j < 6; ++j) {
      EXPECT_EQ(weights.hidden[static_cast<std::size_t>(i * 6 + j)], j > i ? Hidden::causal : Hidden::visible);
      if (j > i) { EXPECT_EQ(weights.values.select(0, i).select(0, j).item(), 0); }
    }
}

TEST(Explain, EveryReasonHasItsOwnName) {
  ExplainOptions options;
  options.mask = Mask::causal() & Mask::window(1, 0) & ~Mask::prefix(1);
  const Explanation told = explain_batch({"a b c d", "e f"}, options);
  const std::vector<Hidden>& hidden = told.step("mask").hidden;
  EXPECT_EQ(hidden[0 * 4 + 1], Hidden::causal);
  EXPECT_EQ(hidden[3 * 4 + 1], Hidden::window);
  EXPECT_EQ(hidden[1 * 4 + 0], Hidden::mask);
  EXPECT_EQ(hidden[3 * 4 + 3], Hidden::visible);
  EXPECT_EQ(hidden[16 + 1 * 4 + 3], Hidden::padding);
  EXPECT_EQ(hidden[16 + 3 * 4 + 0], Hidden::padding);
}

TEST(Explain, ASentenceOfABatchHasTheBitsItHasAlone) {
  const std::vector<std::string> texts{"我叫张三", "他是谁", "李四"};
  const Explanation told = explain_batch(texts);
  EXPECT_EQ(told.step("alone").values.to_int_vector(), (std::vector<std::int64_t>{1, 1, 1}));
  const Tensor context = told.step("context").values;
  EXPECT_EQ(context.sizes(), (Dims{3, 4, 4}));
  for (const double value : context.select(0, 1).narrow(0, 3, 1).to_vector()) EXPECT_EQ(value, 0);
  for (const double value : context.select(0, 2).narrow(0, 2, 2).to_vector()) EXPECT_EQ(value, 0);
  // Computed here from the batch's own q, k, v of one sentence, without the others and without padding.
  const auto part = [&](const char* name) { return told.step(name).values.select(0, 1).narrow(0, 0, 3).contiguous(); };
  EXPECT_TRUE(bits_equal(part("context"), attention(part("q"), part("k"), part("v")).output.reshape({3, 4})));
}

TEST(Explain, CrossAttentionAsksOneTextAboutAnother) {
  ExplainOptions options;
  options.to = "b c d";
  const Explanation told = explain("a b", options);
  EXPECT_EQ(told.step("scores").shape, (Dims{2, 3}));
  EXPECT_EQ(told.step("ids").values.to_int_vector(), (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(told.step("ids_to").values.to_int_vector(), (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_TRUE(bits_equal(
      told.step("context").values,
      attention(told.step("q").values, told.step("k").values, told.step("v").values).output.reshape({2, 4})));
}

TEST(Explain, PositionsEnterAsTheirPapersSay) {
  ExplainOptions options;
  options.positions = Positions::sinusoidal;
  options.dim = 4;
  const Explanation sines = explain("a b c", options);
  const std::vector<double> p = sines.step("positions").values.to_vector();
  EXPECT_NEAR(p[4], std::sin(1.0), 1e-7);
  EXPECT_NEAR(p[5], std::cos(1.0), 1e-7);
  EXPECT_NEAR(p[6], std::sin(0.01), 1e-7);
  EXPECT_TRUE(bits_equal(sines.step("x_positions").values, sines.step("x").values + sines.step("positions").values));
  options.positions = Positions::rotary;
  const Explanation rotated = explain("a b c", options);
  const std::vector<double> q = rotated.step("q").values.to_vector(), t = rotated.step("q_rotated").values.to_vector();
  EXPECT_EQ(q[0], t[0]);
  EXPECT_NEAR(t[2], q[2] * std::cos(1.0) - q[3] * std::sin(1.0), 1e-6);
  EXPECT_NEAR(t[3], q[2] * std::sin(1.0) + q[3] * std::cos(1.0), 1e-6);
  options.dk = 3;
  EXPECT_THROW(explain("a b c", options), ValueError);
}

TEST(Explain, OneQueryByHandAddsUp) {
  for (const Score::Kind kind :
       {Score::Kind::scaled_dot, Score::Kind::dot, Score::Kind::general, Score::Kind::additive}) {
    ExplainOptions options;
    options.query = 3;
    options.score = kind;
    options.mask = Mask::window(2, 0);
    const Explanation told = explain(kSentence, options);
    const ExplainStep& stages = told.step("query_scores");
    const std::int64_t n = stages.shape.back(), scaled = kind == Score::Kind::scaled_dot ? 1 : 0;
    double total = 0;
    for (std::int64_t key = 1; key < 4; ++key) {
      const std::vector<double> row = stages.values.select(0, key).to_vector();
      EXPECT_NEAR(row[0] + row[1], row[2], 1e-5);
      EXPECT_NEAR(std::exp(row[static_cast<std::size_t>(n - 3)]), row[static_cast<std::size_t>(n - 2)], 1e-12);
      total += row[static_cast<std::size_t>(n - 2)];
    }
    EXPECT_EQ(n, 2 + 1 + scaled + 3);
    const std::vector<double> sum = told.step("query_values").values.select(0, 6).to_vector();
    EXPECT_NEAR(sum[0], 1, 1e-6);
    for (std::int64_t d = 0; d < 4; ++d) {
      double column = 0;
      for (std::int64_t key = 1; key < 4; ++key)
        column += told.step("query_values").values.select(0, key).to_vector()[static_cast<std::size_t>(d + 1)];
      EXPECT_NEAR(column, sum[static_cast<std::size_t>(d + 1)], 1e-6);
      EXPECT_EQ(sum[static_cast<std::size_t>(d + 1)],
                told.step("context").values.select(0, 3).to_vector()[static_cast<std::size_t>(d)]);
    }
    EXPECT_NEAR(stages.values.select(0, 2).to_vector().back(),
                stages.values.select(0, 2).to_vector()[static_cast<std::size_t>(n - 2)] / total, 1e-6);
  }
}

TEST(Explain, ANegativeQueryCountsFromTheEnd) {
  ExplainOptions options;
  const auto opened = [&](std::int64_t query) {
    options.query = query;
    return to_json(explain(kSentence, options));
  };
  EXPECT_EQ(opened(-1), opened(5));
  EXPECT_EQ(opened(-6), opened(0));
  EXPECT_EQ(explain(kSentence, options).query, 0);
  EXPECT_EQ(error_of<ValueError>([&] { opened(-7); }),
            "explain: query -7 is not there; the tokens are 0 to 5, or -6 to -1 from the end");
  options.query = -1;  // of the longest text; the first has no such token
  const Explanation batch = explain_batch({"life", "life is short"}, options);
  EXPECT_EQ(batch.query, 2);
  EXPECT_NE(to_text(batch, {}).find("life"), std::string::npos);
}

TEST(Explain, OwnMatricesAreUsed) {
  ExplainOptions options;
  options.w_query = ones({3, 2});
  options.w_key = zeros({3, 2});
  options.w_value = tensor<float>({1, 2, 3}, {3, 1});
  const Explanation told = explain("a b", options);
  EXPECT_TRUE(bits_equal(told.step("q").values, matmul(told.step("x").values, options.w_query)));
  for (const double weight : told.step("weights").values.to_vector()) EXPECT_EQ(weight, 0.5);
  options.w_key = zeros({4, 2});
  EXPECT_THROW(explain("a b", options), ShapeError);
  options.w_key = Tensor();
  EXPECT_THROW(explain("a b", options), ValueError);
}

TEST(Explain, PaddingNeedsAnIdWhereThereIsSome) {
  ExplainOptions options;
  options.embedding = ones({6, 3});
  EXPECT_EQ(explain("one two three four five six", options).step("x").values.size(0), 6);
  EXPECT_EQ(explain_batch({"one two three", "four five six"}, options).step("x").values.size(0), 2);
  EXPECT_EQ(error_of<ValueError>([&] { explain_batch({"one two three", "four five six", "one"}, options); }),
            "explain: the text needs 7 ids, one of them for PAD; the embedding has 6 rows");
  EXPECT_EQ(error_of<ValueError>([&] { explain("1 2 3 4 5 6 7", options); }),
            "explain: the text needs 7 ids; the embedding has 6 rows");
}

TEST(Explain, TransposedMatricesAreRecognised) {
  ExplainOptions options;
  options.w_query = options.w_key = ones({2, 3});
  options.w_value = ones({4, 3});
  EXPECT_EQ(error_of<ShapeError>([&] { explain("a b", options); }),
            "explain: w_value has shape [4, 3]; its dim must be 2 to match w_query [2, 3]; the three look transposed: "
            "give their transposes");
  options.w_query = options.w_key = ones({3, 2});
  EXPECT_EQ(error_of<ShapeError>([&] { explain("a b", options); }),
            "explain: w_value has shape [4, 3]; its dim must be 3 to match w_query [3, 2]; it looks transposed: give "
            "its transpose");
  options.w_value = ones({3, 4});
  options.embedding = ones({3, 9});
  EXPECT_EQ(error_of<ShapeError>([&] { explain("a b", options); }),
            "explain: embedding has shape [3, 9]; its last dim must be 3 to match w_query; it looks transposed: give "
            "its transpose");
}

TEST(Explain, MistakesAreNamed) {
  EXPECT_THROW(explain(""), ValueError);
  EXPECT_THROW(explain(" , "), ValueError);
  EXPECT_THROW(explain_batch({}), ValueError);
  ExplainOptions options;
  options.query = 6;
  EXPECT_THROW(explain(kSentence, options), ValueError);
  options.query.reset();
  options.heads = 0;
  EXPECT_THROW(explain(kSentence, options), ValueError);
  std::string longest;
  for (int i = 0; i < 3000; ++i) longest += "w ";
  EXPECT_THROW(explain(longest), ValueError);
}

TEST(Explain, EveryPhraseIsSaidInEveryLanguage) {
  for (int i = 0; i < static_cast<int>(explain_detail::Phrase::count_); ++i) {
    const auto phrase = static_cast<explain_detail::Phrase>(i);
    const std::string_view en = say(Language::en, phrase), zh = say(Language::zh, phrase);
    EXPECT_FALSE(en.empty() || zh.empty()) << i;
    EXPECT_EQ(std::count(en.begin(), en.end(), '{'), std::count(zh.begin(), zh.end(), '{')) << i;
  }
  EXPECT_EQ(say(Language::en, explain_detail::Phrase::loss), "loss L = ½ Σ {}² = {}");
  EXPECT_EQ(say(Language::zh, explain_detail::Phrase::tokens), "词元");
}

}  // namespace
}  // namespace attn
