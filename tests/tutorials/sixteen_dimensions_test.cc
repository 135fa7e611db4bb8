// tests/tutorials/sixteen_dimensions_test.cc: every step of tutorial 004: weights applied from the left, stacked heads,
// two sentences.
#include "support/tutorial.h"

#include <attn/attention.h>
#include <attn/nn.h>
#include <attn/random.h>
#include <attn/text.h>

#include <cmath>

namespace attn::testing {
namespace {

const double sqrt_24 = std::sqrt(24.0);

using Drawn = std::vector<std::pair<std::string, Tensor>>;

Drawn draw() {
  Drawn drawn;
  manual_seed(123);
  drawn.emplace_back("embedding_weight", nn::Embedding(6, 16).weight.detach());
  const auto three = [&](const std::string& prefix, auto... heads) {
    drawn.emplace_back(prefix + "W_query", rand({heads..., 24, 16}));
    drawn.emplace_back(prefix + "W_key", rand({heads..., 24, 16}));
    drawn.emplace_back(prefix + "W_value", rand({heads..., 28, 16}));
  };
  manual_seed(123);
  three("");
  three("multihead_", 3);
  manual_seed(123);
  for (const std::int64_t rows : {24, 24, 28}) rand({rows, 16});
  drawn.emplace_back("embedded_sentence_2", rand({8, 16}));
  return drawn;
}

void add_one_query(Steps& steps, const Tutorial& g) {
  const Tensor x = g("embedded_sentence");
  steps["token_indices"] = exact([] {
    const std::string sentence = "Life is short, eat dessert first";
    return tensor<std::int64_t>(text::Vocabulary::of(sentence).encode(text::split(sentence)));
  });
  steps["embedded_sentence"] = exact([&g] { return embedding(g("token_indices"), g("embedding_weight")); },
                                     [&g] { return g("embedding_weight").index_select(0, g("token_indices")); });
  steps["query_2"] = close([=, &g] { return matmul(g("W_query"), x[1]); });
  steps["key_2"] = close([=, &g] { return matmul(g("W_key"), x[1]); });
  steps["value_2"] = close([=, &g] { return matmul(g("W_value"), x[1]); });
  steps["keys"] = close([=, &g] { return matmul(g("W_key"), x.t()).t(); }, [=, &g] { return linear(x, g("W_key")); });
  steps["values"] =
      close([=, &g] { return matmul(g("W_value"), x.t()).t(); }, [=, &g] { return linear(x, g("W_value")); });
  steps["omega_24"] = close([&g] { return dot(g("query_2"), g("keys")[4]); });
  steps["omega_2"] =
      close([&g] { return matmul(g("query_2"), g("keys").t()); },
            [&g] { return attention_scores(g("query_2").unsqueeze(0), g("keys"), {.score = Score::dot()})[0]; });
  steps["attention_weights_2"] = close(
      [&g] { return softmax(g("omega_2") / sqrt_24, 0); },
      [&g] {
        return attention(g("query_2").unsqueeze(0), g("keys"), g("values"), {.weights = Weights::full}).weights[0];
      });
  steps["context_vector_2"] =
      close([&g] { return matmul(g("attention_weights_2"), g("values")); },
            [&g] { return attention(g("query_2").unsqueeze(0), g("keys"), g("values")).output[0]; });
}

void add_heads(Steps& steps, const Tutorial& g) {
  const Tensor x = g("embedded_sentence");
  const auto stacked = [=] { return x.t().repeat({3, 1, 1}); };
  const auto fused = [&g] {  // [B = 1, heads, rows, d]
    return attention(g("multihead_query_2").unsqueeze(1).unsqueeze(0), g("multihead_keys").unsqueeze(0),
                     g("multihead_values").unsqueeze(0), {.weights = Weights::full});
  };
  steps["multihead_query_2"] = close([=, &g] { return matmul(g("multihead_W_query"), x[1]); });
  steps["multihead_key_2"] = close([=, &g] { return matmul(g("multihead_W_key"), x[1]); });
  steps["multihead_value_2"] = close([=, &g] { return matmul(g("multihead_W_value"), x[1]); });
  steps["multihead_keys"] = close([=, &g] { return bmm(g("multihead_W_key"), stacked()).permute({0, 2, 1}); },
                                  [=, &g] { return einsum("hqd,td->htq", {g("multihead_W_key"), x}); });
  steps["multihead_values"] = close([=, &g] { return bmm(g("multihead_W_value"), stacked()).permute({0, 2, 1}); });
  steps["multihead_omega_2"] =
      close([&g] { return matmul(g("multihead_keys"), g("multihead_query_2").unsqueeze(-1)).squeeze(-1); },
            [&g] { return einsum("hd,htd->ht", {g("multihead_query_2"), g("multihead_keys")}); });
  steps["multihead_attention_weights_2"] = close([&g] { return softmax(g("multihead_omega_2") / sqrt_24, -1); },
                                                 [=] { return fused().weights.reshape({3, 6}); });
  steps["multihead_context_vector_2"] =
      close([&g] { return bmm(g("multihead_attention_weights_2").unsqueeze(1), g("multihead_values")).squeeze(1); },
            [=] { return fused().output.reshape({3, 28}); });
}

void add_cross(Steps& steps, const Tutorial& g) {
  const Tensor x_2 = g("embedded_sentence_2");
  const auto fused = [=, &g] {
    return cross_attention(g("embedded_sentence"), x_2, g("W_query").t(), g("W_key").t(), g("W_value").t());
  };
  steps["cross_keys"] = close([=, &g] { return matmul(g("W_key"), x_2.t()).t(); });
  steps["cross_values"] = close([=, &g] { return matmul(g("W_value"), x_2.t()).t(); });
  steps["cross_omega_2"] = close([&g] { return matmul(g("query_2"), g("cross_keys").t()); });
  steps["cross_attention_weights_2"] =
      close([&g] { return softmax(g("cross_omega_2") / sqrt_24, 0); }, [=] { return fused().weights[1]; });
  steps["cross_context_vector_2"] = close([&g] { return matmul(g("cross_attention_weights_2"), g("cross_values")); },
                                          [=] { return fused().context[1]; });
}

TEST(SixteenDimensionsTutorial, EveryStep) {
  const Tutorial tutorial("004");
  Steps steps;
  add_drawn(steps, draw());
  add_one_query(steps, tutorial);
  add_heads(steps, tutorial);
  add_cross(steps, tutorial);
  EXPECT_EQ(expect_every_step(tutorial, steps), 32u);
}

}  // namespace
}  // namespace attn::testing
