// tests/nn/small_attention_test.cc: the tutorials' modules: same draws bit for bit, same results by the error rule.
#include <attn/nn.h>
#include <attn/ops.h>
#include <attn/random.h>

#include "support/golden.h"

#include <gtest/gtest.h>

#include <string>

namespace attn::nn {
namespace {

using Json = nlohmann::json;

/// The steps of one tutorial by name.
class Tutorial {
 public:
  explicit Tutorial(const std::string& file) : steps_(testing::golden("full/" + file + ".json").at("steps")) {}
  Tensor operator[](const std::string& name) const {
    for (const Json& step : steps_)
      if (step.at("name") == name) return testing::golden_tensor(step);
    throw std::runtime_error("no step " + name);
  }

 private:
  const Json& steps_;
};

const Tutorial& first() {
  static const Tutorial tutorial("000_48db75b0c9f9543f");
  return tutorial;
}
const Tutorial& second() {
  static const Tutorial tutorial("001_fb4a998c3173c846");
  return tutorial;
}
const Tutorial& third() {
  static const Tutorial tutorial("003_7bb1704bda755eee");
  return tutorial;
}

/// The figures come from one machine's float32 products: 2e-6 of the largest is the record's own bound.
::testing::AssertionResult as_recorded(const Tensor& ours, const Tensor& expected) {
  double largest = 0;
  for (const double value : expected.to_vector()) largest = std::max(largest, std::abs(value));
  return testing::within(ours.detach(), expected, 2e-6 * largest);
}

::testing::AssertionResult drawn(const Tensor& parameter, const Tensor& expected) {
  return testing::bits_equal(parameter.detach(), expected);
}

TEST(FirstTutorial, SelfAttention) {
  manual_seed(123);
  const SelfAttention module(3, 2, 4);
  EXPECT_TRUE(drawn(module.w_query, first()["w_q"]));
  EXPECT_TRUE(drawn(module.w_key, first()["w_k"]));
  EXPECT_TRUE(drawn(module.w_value, first()["w_v"]));
  const Tensor x = first()["embedded_sentence"];
  EXPECT_TRUE(as_recorded(module(x), first()["self_attention"]));
  EXPECT_TRUE(as_recorded(module.attend(x, {.weights = Weights::full}).weights, first()["attention_weights"]));
  EXPECT_TRUE(module(x).requires_grad());
}

TEST(FirstTutorial, EmbeddingOfTheSentence) {
  manual_seed(123);
  const Embedding module(50000, 3);
  EXPECT_TRUE(drawn(module(first()["token_indices"]), first()["embedded_sentence"]));
}

TEST(FirstTutorial, HeadsSideBySide) {
  manual_seed(123);
  const MultiHeadAttentionWrapper module(3, 2, 1, 4);
  const StateDict state = module.state_dict();
  ASSERT_EQ(state.size(), 12u);
  EXPECT_EQ(state[0].first, "heads.0.w_query");
  EXPECT_EQ(state[11].first, "heads.3.w_value");
  for (std::int64_t h = 0; h < 4; ++h) {
    const std::string head = "head" + std::to_string(h);
    EXPECT_TRUE(drawn(module.heads[h].w_query, first()[head + "_w_query"]));
    EXPECT_TRUE(drawn(module.heads[h].w_key, first()[head + "_w_key"]));
    EXPECT_TRUE(drawn(module.heads[h].w_value, first()[head + "_w_value"]));
  }
  const Tensor x = first()["embedded_sentence"];
  EXPECT_TRUE(as_recorded(module(x), first()["multi_head_4"]));
  EXPECT_TRUE(as_recorded(module.heads[0](x), first()["self_attention_dv1"]));
  EXPECT_THROW(MultiHeadAttentionWrapper(3, 2, 1, 0), ValueError);
}

TEST(FirstTutorial, CrossAttention) {
  manual_seed(123);
  const CrossAttention module(3, 2, 4);
  const Tensor x2 = rand({8, 3});
  EXPECT_TRUE(drawn(x2, first()["second_sequence"]));
  EXPECT_TRUE(as_recorded(module(first()["embedded_sentence"], x2), first()["cross_attention"]));
  EXPECT_TRUE(as_recorded(module.attend(first()["embedded_sentence"], x2, {.weights = Weights::full}).weights,
                          first()["cross_attention_weights"]));
}

TEST(FirstTutorial, CausalSelfAttention) {
  manual_seed(123);
  const CausalSelfAttention module(3, 2, 4);
  const Tensor x = first()["embedded_sentence"];
  EXPECT_TRUE(as_recorded(module(x), first()["causal_context_scaled"]));
  EXPECT_TRUE(as_recorded(module(x), first()["causal_context"]));
  EXPECT_TRUE(
      as_recorded(module.attend(x, {.weights = Weights::full}).weights, first()["masked_scores_softmax_scaled"]));
}

TEST(FirstTutorial, ABatchOfSentences) {
  manual_seed(123);
  const SelfAttention module(3, 2, 4);
  const Tensor x = first()["embedded_sentence"], two = stack({x, x});
  EXPECT_TRUE(testing::bits_equal(module(two).detach()[1].contiguous(), module(x).detach()));
}

TEST(SecondTutorial, ScoresAndPooling) {
  manual_seed(102);
  const AdditiveAttention additive(4);
  const Tensor x = randn({3, 4, 4});
  EXPECT_TRUE(drawn(additive.W_q.weight, second()["additive_W_q"]));
  EXPECT_TRUE(drawn(additive.W_k.weight, second()["additive_W_k"]));
  EXPECT_TRUE(drawn(additive.w.weight, second()["additive_w"]));
  EXPECT_TRUE(drawn(additive.q, second()["additive_q"]));
  EXPECT_TRUE(drawn(x, second()["additive_X"]));
  const ScoresAndContext pooled = additive(x);
  EXPECT_TRUE(as_recorded(pooled.scores, second()["additive_score"]));
  EXPECT_TRUE(as_recorded(pooled.weights, second()["additive_weights"]));
  EXPECT_TRUE(as_recorded(pooled.context, second()["additive_context"]));

  const DotProductAttention dot(4);
  const Tensor y = randn({3, 4, 4});
  EXPECT_TRUE(drawn(dot.q, second()["dot_q"]));
  EXPECT_TRUE(as_recorded(dot(y).scores, second()["dot_score"]));
  EXPECT_TRUE(testing::within(dot(y).weights.detach(), softmax(second()["dot_score"], -1), 1e-6));
  const Tensor mean_of_rows = matmul(softmax(second()["dot_score"], -1).unsqueeze(1), y).squeeze(1);
  EXPECT_TRUE(testing::within(dot(y).context.detach(), mean_of_rows, 1e-6));

  const SelfAttentionScore score(4);
  const Tensor z = randn({3, 4, 4});
  EXPECT_TRUE(drawn(score.W_q.weight, second()["self_W_q"]));
  EXPECT_TRUE(as_recorded(score(z), second()["self_attention_score"]));
  EXPECT_TRUE(drawn(randn({3, 4, 3}), second()["x"]));  // what the notebook draws next
}

TEST(SecondTutorial, PaddingIsShutOutOfThePool) {
  manual_seed(102);
  const AdditiveAttention module(4);
  const Tensor x = randn({3, 4, 4});
  const Tensor padding = zeros({3, 4}, Dtype::boolean);
  padding[0].slice(0, 2).fill_(true);
  padding[2].fill_(true);
  const ScoresAndContext pooled = module(x, padding);
  const ScoresAndContext shorter = module(x.slice(0, 0, 1).slice(1, 0, 2));
  EXPECT_TRUE(testing::bits_equal(pooled.context.detach()[0], shorter.context.detach()[0]));
  EXPECT_EQ(pooled.weights.detach()[0].slice(0, 2).to_vector(), (std::vector<double>{0, 0}));
  EXPECT_EQ(pooled.context.detach()[2].to_vector(), (std::vector<double>{0, 0, 0, 0}));
  try {
    module(x, padding.slice(1, 0, 3));
    FAIL();
  } catch (const ShapeError& error) {
    EXPECT_STREQ(error.what(), "AdditiveAttention: padding has shape [3, 3]; it must be [3, 4]");
  }
  EXPECT_THROW(module(x[0]), ShapeError);
}

TEST(SecondTutorial, TorchsModuleInTheNotebook) {
  const Tensor x = second()["x"];
  const MultiheadAttention module(3, 1, {.batch_first = true});
  module.load_state_dict({{"in_proj_weight", second()["in_proj_weight"]},
                          {"in_proj_bias", second()["in_proj_bias"]},
                          {"out_proj.weight", second()["out_proj_weight"]},
                          {"out_proj.bias", second()["out_proj_bias"]}});
  const Tensor keep = second()["keep_mask"];
  const MultiheadAttentionResult masked = module(x, x, x, {.attn_mask = logical_not(keep)});
  EXPECT_TRUE(as_recorded(masked.output, second()["torch_output_attn_mask"]));
  EXPECT_TRUE(as_recorded(masked.weights, second()["torch_weights_attn_mask"]));
  const MultiheadAttentionResult padded = module(x, x, x, {.key_padding_mask = logical_not(keep.select(1, 0))});
  EXPECT_TRUE(as_recorded(padded.output, second()["torch_output_key_padding_mask"]));
  EXPECT_TRUE(as_recorded(padded.weights, second()["torch_weights_key_padding_mask"]));
}

TEST(SecondTutorial, TwoHeads) {
  const Tensor x = second()["input_x"];
  const MultiheadAttention module(6, 2, {.batch_first = true});
  module.load_state_dict({{"in_proj_weight", second()["mha2_in_proj_weight"]},
                          {"in_proj_bias", zeros({18})},
                          {"out_proj.weight", second()["mha2_out_proj_weight"]},
                          {"out_proj.bias", zeros({6})}});
  const Tensor padding = ge(arange(4).reshape({1, 4}), tensor<std::int64_t>({4, 3, 2}, {3, 1}));
  const MultiheadAttentionResult averaged = module(x, x, x, {.key_padding_mask = padding});
  EXPECT_TRUE(as_recorded(averaged.output, second()["mha2_torch_output"]));
  EXPECT_TRUE(as_recorded(averaged.weights, second()["mha2_torch_weights"]));
  const MultiheadAttentionResult heads = module(x, x, x, {.key_padding_mask = padding, .average_attn_weights = false});
  EXPECT_TRUE(as_recorded(heads.weights, second()["mha2_torch_weights_per_head"]));
}

TEST(ThirdTutorial, EinsumHeadsByAttention) {
  manual_seed(3);
  const MultiHeadAttention module(8, 2);
  for (const auto& [name, value] : module.state_dict()) EXPECT_TRUE(testing::bits_equal(value, third()[name])) << name;
  const Tensor x = randn({2, 4, 8}), x_kv = randn({2, 5, 8});
  EXPECT_TRUE(drawn(x, third()["x"]));
  EXPECT_TRUE(drawn(x_kv, third()["x_kv"]));
  const Tensor padding = third()["padding_mask"], padding_kv = third()["padding_mask_kv"];
  const Tensor causal = third()["causal_mask"], memory = third()["memory_mask"];
  EXPECT_TRUE(as_recorded(module(x, x, x), third()["self_output"]));
  EXPECT_TRUE(as_recorded(module(x, x, x, padding), third()["self_padding_output"]));
  EXPECT_TRUE(as_recorded(module(x, x, x, {}, causal), third()["self_causal_output"]));
  EXPECT_TRUE(as_recorded(module(x, x, x, padding, causal), third()["self_padding_causal_output"]));
  EXPECT_TRUE(as_recorded(module(x, x_kv, x_kv), third()["cross_output"]));
  EXPECT_TRUE(as_recorded(module(x, x_kv, x_kv, padding_kv), third()["cross_padding_output"]));
  EXPECT_TRUE(as_recorded(module(x, x_kv, x_kv, {}, memory), third()["cross_memory_output"]));
  EXPECT_TRUE(as_recorded(module(x, x_kv, x_kv, padding_kv, memory), third()["cross_padding_memory_output"]));
  EXPECT_TRUE(as_recorded(module(x, x_kv, x_kv, padding_kv.to(Dtype::f32), memory.to(Dtype::boolean)),
                          third()["cross_padding_memory_output"]));
}

TEST(ThirdTutorial, AFullyMaskedSampleGivesTheOutputBiasWhereTheTutorialGivesNan) {
  manual_seed(3);
  const MultiHeadAttention module(8, 2);
  const Tensor x = third()["x"], expected = third()["self_fully_masked_output"];
  const Tensor ours = module(x, x, x, third()["padding_mask_all"]).detach();
  EXPECT_TRUE(as_recorded(ours[0], expected[0]));
  EXPECT_TRUE(std::isnan(expected[1].to_vector()[0]));
  EXPECT_TRUE(testing::bits_equal(ours[1].contiguous(), module.W_O.bias.detach().expand({4, 8}).contiguous()));
}

TEST(ThirdTutorial, Errors) {
  try {
    MultiHeadAttention(8, 3);
    FAIL();
  } catch (const ValueError& error) {
    EXPECT_STREQ(error.what(), "MultiHeadAttention: d_model 8 and num_heads 3; num_heads must divide d_model");
  }
  const MultiHeadAttention module(8, 2);
  const Tensor x = ones({2, 4, 8});
  EXPECT_THROW(module(x, x, x, ones({2, 5})), ShapeError);
  EXPECT_THROW(module(x, x, x, {}, ones({2, 4, 4})), ShapeError);
  EXPECT_THROW(module(ones({4, 8}), x, x), ShapeError);
}

}  // namespace
}  // namespace attn::nn
