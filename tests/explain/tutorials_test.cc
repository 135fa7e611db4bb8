// tests/explain/tutorials_test.cc: W_O, a learned query, own score matrices and a small vocabulary give the figures of
// the tutorials and of PyTorch.
#include "support/errors.h"
#include "support/tutorial.h"

#include <attn/explain.h>
#include <attn/ops.h>

#include "runtime/format.h"

#include <gtest/gtest.h>

namespace attn::testing {
namespace {

const std::string kSentence = "Life is short, eat dessert first";
constexpr double kRounding = 2e-6;  // of the largest number, as in tests/tutorials

/// Texts whose tokens have the ids 0, 1, 2 ... in their order, so that an embedding gives each its own vector.
std::vector<std::string> texts_of(std::initializer_list<int> lengths) {
  std::vector<std::string> texts;
  int id = 0;
  for (const int length : lengths) {
    texts.emplace_back();
    for (int i = 0; i < length; ++i) texts.back() += runtime::format("t{:02} ", id++);
  }
  return texts;
}

/// The rows of x [B, T, dim] that are no padding, and a last one for PAD.
Tensor embedding_of(const Tensor& x, std::initializer_list<int> lengths) {
  std::vector<Tensor> rows;
  std::int64_t b = 0;
  for (const int length : lengths) rows.push_back(x.select(0, b++).narrow(0, 0, length));
  rows.push_back(zeros({1, x.size(2)}));
  return cat(rows, 0);
}

::testing::AssertionResult near_tutorial(const Tensor& ours, const Tensor& expected) {
  return within(ours.contiguous(), expected.contiguous(), kRounding * std::max(1.0, max(abs(expected)).item()));
}

/// Compares the rows that are no padding.
void expect_sentences(const Tensor& ours, const Tensor& expected, std::initializer_list<int> lengths) {
  std::int64_t b = 0;
  for (const int length : lengths) {
    EXPECT_TRUE(near_tutorial(ours.select(0, b).narrow(0, 0, length), expected.select(0, b).narrow(0, 0, length))) << b;
    ++b;
  }
}

TEST(ExplainTutorials, TheOutputProjectionIsThatOfTutorial001) {
  const Tutorial g("001");
  const auto lengths = {4, 3, 2};
  ExplainOptions options;
  options.embedding = embedding_of(g("x"), lengths);
  options.w_query = g("W").slice(0, 0, 3).t();
  options.w_key = g("W").slice(0, 3, 6).t();
  options.w_value = g("W").slice(0, 6, 9).t();
  options.w_output = g("W_out").t();
  const Explanation told = explain_batch(texts_of(lengths), options);
  expect_sentences(told.step("scaled").values, g("attn_score"), {1});
  expect_sentences(told.step("context").values, g("context"), lengths);
  expect_sentences(told.step("output").values, g("output"), lengths);
  EXPECT_EQ(told.step("output").formula, "context W_O");
  EXPECT_EQ(told.step("output").source, "your own w_output");
}

TEST(ExplainTutorials, TheHeadsAreMixedByPyTorchsMultiheadAttention) {
  const Tutorial g("001");
  const auto lengths = {4, 3, 2};
  const Tensor &w = g("mha2_in_proj_weight"), x = g("input_x");
  ExplainOptions options;
  options.heads = 2;
  options.embedding = embedding_of(x, lengths);
  options.w_query = w.slice(0, 0, 6).t();
  options.w_key = w.slice(0, 6, 12).t();
  options.w_value = w.slice(0, 12, 18).t();
  options.w_output = g("mha2_out_proj_weight").t();
  const Explanation told = explain_batch(texts_of(lengths), options);
  expect_sentences(told.step("output").values, g("mha2_torch_output"), lengths);
  EXPECT_EQ(told.step("output").formula, "joined W_O");
  EXPECT_EQ(told.step("output").operation.inputs, (std::vector<std::string>{"joined", "w_output"}));
}

/// The biases of tutorial 003 as one more number: x has a last 1, whose row in each matrix is the bias; each head's v
/// has a 1 too, and the first head's takes the bias of W_O with it.
TEST(ExplainTutorials, TheOutputOfTutorial003) {
  const Tutorial g("003");
  const auto lengths = {4, 4};
  const Tensor one = ones({2, 4, 1});
  const auto with_bias = [&](const std::string& name) {
    return cat({g(name + ".weight").t(), g(name + ".bias").reshape({1, 8})}, 0);
  };
  ExplainOptions options;
  options.heads = 2;
  options.embedding = embedding_of(cat({g("x"), one}, 2), lengths);
  options.w_query = with_bias("W_Q");
  options.w_key = with_bias("W_K");
  const Tensor v = with_bias("W_V"), passes = cat({zeros({8, 1}), ones({1, 1})}, 0);
  options.w_value = cat({v.slice(1, 0, 4), passes, v.slice(1, 4, 8), passes}, 1);
  const Tensor w_o = g("W_O.weight").t();
  options.w_output = cat({w_o.slice(0, 0, 4), g("W_O.bias").reshape({1, 8}), w_o.slice(0, 4, 8), zeros({1, 8})}, 0);
  for (const auto& [mask, name] : {std::pair{Mask(), "self"}, {Mask::causal(), "self_causal"}}) {
    options.mask = mask;
    const Explanation told = explain_batch(texts_of(lengths), options);
    EXPECT_TRUE(near_tutorial(told.step("weights").values.permute({0, 2, 3, 1}), g(name + std::string("_weights"))));
    EXPECT_TRUE(near_tutorial(told.step("output").values, g(name + std::string("_output"))));
  }
}

/// PyTorch 2.13: rand(3, 2), rand(3, 2), rand(3, 4) for each of two heads, then rand(8, 3), from manual_seed(123).
TEST(ExplainTutorials, TheOutputProjectionIsDrawnAfterTheHeads) {
  ExplainOptions options;
  options.heads = 2;
  options.output_projection = true;
  options.gradients = true;
  const Explanation told = explain(kSentence, options);
  const auto row = [&](const char* name, std::int64_t i) { return told.step(name).values.select(0, i); };
  EXPECT_TRUE(within(row("output", 0), tensor<float>({-0.167364568F, -0.0904177874F, -0.0872951299F}), 1e-6));
  EXPECT_TRUE(within(row("output", 2), tensor<float>({-1.34242797F, -1.23756349F, -0.874975204F}), 1e-6));
  EXPECT_EQ(told.parameters.back().name, "w_output");
  EXPECT_TRUE(bits_equal(told.parameters.back().values.select(0, 0),
                         tensor<float>({0.945506334F, 0.805746436F, 0.677480757F})));
  // the same numbers in front of it as without W_O
  ExplainOptions without = options;
  without.output_projection = false;
  EXPECT_TRUE(bits_equal(told.step("joined").values, explain(kSentence, without).step("joined").values));
  // the backward pass begins at the output; torch's L = (output ** 2).sum() / 2
  EXPECT_EQ(told.step("d_output").source, "loss L = ½ Σ output² = 47.0692");
  EXPECT_TRUE(bits_equal(told.step("d_output").values, told.step("output").values));
  EXPECT_TRUE(within(told.step("d_context").values.select(0, 1).select(0, 2),
                     tensor<float>({-1.93120837F, -1.04671586F, -1.07643545F, -2.85233974F}), 4e-6));
}

TEST(ExplainTutorials, ALearnedQueryAsksByAdditionAsInTutorial001) {
  const Tutorial g("001");
  const auto lengths = {4, 4, 4};
  ExplainOptions options;
  options.score = Score::Kind::additive;
  options.embedding = embedding_of(g("additive_X"), lengths);
  options.w_query = options.w_key = options.w_value = eye(4);
  options.query_vector = g("additive_q");
  options.score_w_query = g("additive_W_q");
  options.score_w_key = g("additive_W_k");
  options.score_w = g("additive_w");
  const Explanation told = explain_batch(texts_of(lengths), options);
  EXPECT_EQ(told.step("scores").shape, (Dims{3, 1, 4}));
  EXPECT_TRUE(near_tutorial(told.step("scores").values.squeeze(1), g("additive_score")));
  EXPECT_TRUE(near_tutorial(told.step("weights").values.squeeze(1), g("additive_weights")));
  EXPECT_TRUE(near_tutorial(told.step("context").values.squeeze(1), g("additive_context")));
  EXPECT_EQ(told.step("scores").source, "your own S_q, S_k, w");
  EXPECT_EQ(told.step("learned_query").rows[0], (std::vector<std::string>{"query"}));
  EXPECT_EQ(told.step("alone").values.to_int_vector(), (std::vector<std::int64_t>{1, 1, 1}));
}

TEST(ExplainTutorials, ALearnedQueryAsksByDotProductAsInTutorial001) {
  const Tutorial g("001");
  const auto lengths = {4, 4, 4};
  ExplainOptions options;
  options.score = Score::Kind::dot;
  options.embedding = embedding_of(g("dot_X"), lengths);
  options.w_query = options.w_key = options.w_value = eye(4);
  options.query_vector = g("dot_q");
  EXPECT_TRUE(
      near_tutorial(explain_batch(texts_of(lengths), options).step("scores").values.squeeze(1), g("dot_score")));
}

/// PyTorch 2.13: rand(3, 2), rand(3, 2), rand(3, 4), randn(1, 3) from manual_seed(123).
TEST(ExplainTutorials, ALearnedQueryIsDrawnLast) {
  ExplainOptions options;
  options.learned_query = true;
  const Explanation told = explain(kSentence, options);
  EXPECT_TRUE(within(told.step("learned_query").values,
                     tensor<float>({0.234973416F, 0.665260434F, 0.352820754F}, {1, 3}), 1e-7));
  EXPECT_TRUE(within(
      told.step("weights").values,
      tensor<float>({0.101101972F, 0.40584895F, 0.0743589029F, 0.147086456F, 0.192806572F, 0.0787970945F}, {1, 6}),
      2e-7));
  EXPECT_TRUE(within(told.step("context").values,
                     tensor<float>({0.278579205F, 0.782223582F, 0.416910559F, 0.710672617F}, {1, 4}), 1e-6));
  EXPECT_EQ(told.step("x").rows[0].size(), 6U);
  EXPECT_EQ(told.step("q").formula, "u W_q");
  options.query = -1;
  EXPECT_EQ(explain(kSentence, options).step("query_scores").formula, "query 0 \"query\"");
}

TEST(ExplainTutorials, TheTableOfTutorial004HasSixRows) {
  const Tutorial g("004");
  ExplainOptions options;
  options.vocabulary = 6;
  options.dim = 16;
  const Explanation drawn = explain(kSentence, options);
  EXPECT_TRUE(near_tutorial(drawn.step("x").values, g("embedded_sentence")));
  EXPECT_EQ(drawn.step("x").source, "Embedding(6, 16), seed 123");
  options.w_query = g("W_query").t();
  options.w_key = g("W_key").t();
  options.w_value = g("W_value").t();
  const Explanation told = explain(kSentence, options);
  EXPECT_TRUE(near_tutorial(told.step("scores").values.select(0, 1), g("omega_2")));
  EXPECT_TRUE(near_tutorial(told.step("weights").values.select(0, 1), g("attention_weights_2")));
  EXPECT_TRUE(near_tutorial(told.step("context").values.select(0, 1), g("context_vector_2")));
}

/// The last 16 numbers of a table whose size is no multiple of 16 are drawn together. Row 4 of PyTorch 2.13's
/// Embedding(rows, dim) after manual_seed(123).
TEST(ExplainTutorials, ASmallTableIsPyTorchs) {
  struct Table {
    std::int64_t rows, dim;
    std::vector<float> first;
  };
  for (const auto& [rows, dim, first] :
       {Table{6, 3, {-1.15886784F, 0.325471014F}}, Table{5, 3, {0.234973416F, 0.665260434F}},
        Table{17, 3, {0.179379612F, 1.89514804F}}, Table{8, 2, {0.767107069F, -1.19250202F}},
        Table{100, 1, {0.348605186F}}, Table{33, 5, {1.58096957F, 1.30103993F}}}) {
    ExplainOptions options;
    options.vocabulary = rows;
    options.dim = dim;
    const Tensor row = explain("a b c d e", options).step("x").values.select(0, 4);
    EXPECT_TRUE(within(row.narrow(0, 0, static_cast<std::int64_t>(first.size())), tensor<float>(first), 2e-7)) << rows;
  }
}

TEST(ExplainTutorials, MistakesInTheseAreNamed) {
  const auto mistake = [](auto change) {
    ExplainOptions options;
    change(options);
    return error_of<Error>([&] { explain("a b c", options); });
  };
  EXPECT_EQ(
      mistake([](ExplainOptions& o) { o.w_output = ones({3, 4}); }),
      "explain: w_output is f32 [3, 4]; it must be floating [4, any]: the joined heads; it looks transposed: give "
      "its transpose");
  EXPECT_EQ(mistake([](ExplainOptions& o) { o.query_vector = ones({4}); }),
            "explain: query_vector is f32 [4]; it must be floating with 3 numbers, the dim of the embedding");
  EXPECT_EQ(mistake([](ExplainOptions& o) { o.learned_query = true, o.to = "b"; }),
            "explain: learned_query and to do not go together: one learned vector asks, or one text");
  EXPECT_EQ(mistake([](ExplainOptions& o) { o.score_w = ones({2, 2}); }),
            "explain: score_w, score_w_query and score_w_key belong to the scores general and additive");
  EXPECT_EQ(mistake([](ExplainOptions& o) { o.score = Score::Kind::additive, o.score_w = ones({2}); }),
            "explain: score_w_query, score_w_key and score_w come together; one of them is missing");
  EXPECT_EQ(mistake([](ExplainOptions& o) {
              o.score = Score::Kind::general, o.score_w = ones({2, 2}), o.score_w_key = ones({2, 2});
            }),
            "explain: the score general takes score_w alone");
  EXPECT_EQ(mistake([](ExplainOptions& o) { o.vocabulary = 2; }),
            "explain: the text needs 3 ids; the embedding has 2 rows");
  EXPECT_EQ(mistake([](ExplainOptions& o) { o.vocabulary = 0; }),
            "explain: vocabulary is 0; it must be 1 to 1073741824");
  EXPECT_EQ(
      mistake([](ExplainOptions& o) { o.only = {"weights", "contexts"}; }),
      "explain: there is no step \"contexts\"; there are tokens, ids, x, q, k, v, scores, scaled, weights, context");
}

}  // namespace
}  // namespace attn::testing
