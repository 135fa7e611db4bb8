// tests/tutorials/self_attention_test.cc: every step of tutorial 000: self-, multi-head, cross- and causal attention.
#include "support/tutorial.h"

#include <attn/attention.h>
#include <attn/nn.h>
#include <attn/random.h>
#include <attn/text.h>

#include <cmath>
#include <limits>

namespace attn::testing {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
const double sqrt_2 = std::sqrt(2.0);

using Drawn = std::vector<std::pair<std::string, Tensor>>;

/// Each block starts from seed 123.
Drawn draw() {
  Drawn drawn;
  manual_seed(123);
  drawn.emplace_back("embedding_rows_0_to_5", nn::Embedding(50'000, 3).weight.detach().slice(0, 0, 6));
  manual_seed(123);
  drawn.emplace_back("w_q", rand({3, 2}));
  drawn.emplace_back("w_k", rand({3, 2}));
  drawn.emplace_back("w_v", rand({3, 4}));
  manual_seed(123);
  const nn::SelfAttention one(3, 2, 1);
  drawn.emplace_back("dv1_w_query", one.w_query.detach());
  drawn.emplace_back("dv1_w_key", one.w_key.detach());
  drawn.emplace_back("dv1_w_value", one.w_value.detach());
  manual_seed(123);
  const nn::MultiHeadAttentionWrapper four(3, 2, 1, 4);
  for (int i = 0; i < 4; ++i) {
    const std::string head = "head" + std::to_string(i);
    drawn.emplace_back(head + "_w_query", four.heads[i].w_query.detach());
    drawn.emplace_back(head + "_w_key", four.heads[i].w_key.detach());
    drawn.emplace_back(head + "_w_value", four.heads[i].w_value.detach());
  }
  manual_seed(123);
  const nn::CrossAttention cross(3, 2, 4);
  drawn.emplace_back("second_sequence", rand({8, 3}));
  return drawn;
}

template <typename Module>
Module with_weights(const Tensor& w_query, const Tensor& w_key, const Tensor& w_value) {
  const Module module(w_query.size(0), w_query.size(1), w_value.size(1));
  module.load_state_dict({{"w_query", w_query}, {"w_key", w_key}, {"w_value", w_value}});
  return module;
}

Tensor four_heads(const Tutorial& g) {
  const nn::MultiHeadAttentionWrapper four(3, 2, 1, 4);
  nn::StateDict state;
  for (const std::string head : {"0", "1", "2", "3"})
    for (const std::string w : {"w_query", "w_key", "w_value"})
      state.emplace_back("heads." + head + "." + w, g("head" + head + "_" + w));
  four.load_state_dict(state);
  return four(g("embedded_sentence"));
}

void add_one_query(Steps& steps, const Tutorial& g) {
  const Tensor x = g("embedded_sentence");
  steps["token_indices"] = exact([] {
    const std::string sentence = "Life is short, eat dessert first";
    return tensor<std::int64_t>(text::Vocabulary::of(sentence).encode(text::split(sentence)));
  });
  steps["embedded_sentence"] = exact([&g] {
    manual_seed(123);
    return nn::Embedding(50'000, 3)(g("token_indices"));
  });
  steps["queries"] = close([=, &g] { return matmul(x, g("w_q")); }, [=, &g] { return linear(x, g("w_q").t()); });
  steps["keys"] = close([=, &g] { return matmul(x, g("w_k")); });
  steps["values"] = close([=, &g] { return matmul(x, g("w_v")); });
  steps["query_2"] = close([=, &g] { return matmul(x[2], g("w_q")); });
  steps["key_2"] = close([=, &g] { return matmul(x[2], g("w_k")); });
  steps["value_2"] = close([=, &g] { return matmul(x[2], g("w_v")); });
  steps["omega_24"] = close([&g] { return dot(g("query_2"), g("keys")[4]); });
  steps["omega_2"] =
      close([&g] { return matmul(g("query_2"), g("keys").t()); },
            [&g] { return attention_scores(g("query_2").unsqueeze(0), g("keys"), {.score = Score::dot()})[0]; });
  steps["attention_weights_2"] = close([&g] { return softmax(g("omega_2") / sqrt_2, 0); });
  steps["context_vector_2"] =
      close([&g] { return matmul(g("attention_weights_2"), g("values")); },
            [&g] { return attention(g("query_2").unsqueeze(0), g("keys"), g("values")).output[0]; });
}

void add_modules(Steps& steps, const Tutorial& g) {
  const Tensor x = g("embedded_sentence"), x2 = g("second_sequence");
  steps["self_attention"] = close([=, &g] { return self_attention(x, g("w_q"), g("w_k"), g("w_v")).context; },
                                  [=, &g] { return with_weights<nn::SelfAttention>(g("w_q"), g("w_k"), g("w_v"))(x); });
  steps["self_attention_dv1"] =
      close([=, &g] { return with_weights<nn::SelfAttention>(g("dv1_w_query"), g("dv1_w_key"), g("dv1_w_value"))(x); });
  steps["multi_head_4"] = close([&g] { return four_heads(g); });
  steps["cross_attention_weights"] =
      close([=, &g] { return cross_attention(x2, x, g("w_q"), g("w_k"), g("w_v")).weights; });
  steps["cross_attention"] =
      close([=, &g] { return cross_attention(x2, x, g("w_q"), g("w_k"), g("w_v")).context; },
            [=, &g] { return matmul(g("cross_attention_weights"), matmul(x, g("w_v"))); },
            [=, &g] { return with_weights<nn::CrossAttention>(g("w_q"), g("w_k"), g("w_v"))(x, x2); });
}

void add_causal(Steps& steps, const Tutorial& g) {
  const Tensor q = g("queries"), k = g("keys"), v = g("causal_values");
  const auto fused = [=](Score score, Mask mask) {
    return attention(q, k, v, {.score = score, .mask = mask, .weights = Weights::full});
  };
  steps["attention_scores"] =
      close([=] { return matmul(q, k.t()); }, [=] { return attention_scores(q, k, {.score = Score::dot()}); });
  steps["attention_weights"] =
      close([&g] { return softmax(g("attention_scores") / sqrt_2, 1); }, [=] { return fused({}, {}).weights; });
  steps["tril_mask"] = exact([] { return tril(ones({6, 6})); });
  steps["masked_weights"] = exact([&g] { return g("attention_weights") * g("tril_mask"); });
  steps["masked_weights_renormalized"] =
      close([&g] { return g("masked_weights") / sum(g("masked_weights"), {1}, true); },
            [=] { return fused({}, Mask::causal()).weights; });
  steps["causal_values"] = close([&g] { return matmul(g("embedded_sentence"), g("w_v")); });
  steps["causal_context"] = close(
      [&g] { return matmul(g("masked_weights_renormalized"), g("causal_values")); },
      [=] { return fused({}, Mask::causal()).output; },
      [&g] { return with_weights<nn::CausalSelfAttention>(g("w_q"), g("w_k"), g("w_v"))(g("embedded_sentence")); });
  steps["triu_mask"] = exact([] { return triu(ones({6, 6}), 1).to(Dtype::boolean); },
                             [] { return (~Mask::causal()).dense(1, 1, 6, 6)[0][0]; });
  steps["masked_scores"] = exact([&g] { return masked_fill(g("attention_scores"), g("triu_mask"), -infinity); });
  steps["masked_scores_softmax"] = close([&g] { return softmax(g("masked_scores"), 1); },
                                         [=] { return fused(Score::dot(), Mask::causal()).weights; });
  steps["masked_scores_softmax_scaled"] = close([&g] { return softmax(g("masked_scores") / sqrt_2, 1); },
                                                [=, &g] { return fused({}, Mask::block(g("triu_mask"))).weights; });
  steps["causal_context_scaled"] = close([&g] { return matmul(g("masked_scores_softmax_scaled"), g("causal_values")); },
                                         [=] { return scaled_dot_product_attention(q, k, v, {.is_causal = true}); });
}

TEST(SelfAttentionTutorial, EveryStep) {
  const Tutorial tutorial("000");
  Steps steps;
  add_drawn(steps, draw());
  add_one_query(steps, tutorial);
  add_modules(steps, tutorial);
  add_causal(steps, tutorial);
  EXPECT_EQ(expect_every_step(tutorial, steps), 49u);
}

}  // namespace
}  // namespace attn::testing
