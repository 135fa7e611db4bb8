// tests/tutorials/attention_scores_test.cc: every step of tutorial 001: scores, padding, torch's module and the same by
// hand.
#include "support/tutorial.h"

#include <attn/attention.h>
#include <attn/nn.h>
#include <attn/random.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace attn::testing {
namespace {

using Drawn = std::vector<std::pair<std::string, Tensor>>;

/// The whole tutorial is one run from seed 102.
Drawn draw() {
  Drawn drawn;
  const auto keep = [&](const std::string& name, const Tensor& value) { drawn.emplace_back(name, value.detach()); };
  manual_seed(102);
  const nn::AdditiveAttention additive(4);
  keep("additive_W_q", additive.W_q.weight);
  keep("additive_W_k", additive.W_k.weight);
  keep("additive_w", additive.w.weight);
  keep("additive_q", additive.q);
  keep("additive_X", randn({3, 4, 4}));
  keep("dot_q", nn::DotProductAttention(4).q);
  keep("dot_X", randn({3, 4, 4}));
  const nn::SelfAttentionScore score(4);
  keep("self_W_q", score.W_q.weight);
  keep("self_W_k", score.W_k.weight);
  keep("self_X", randn({3, 4, 4}));
  keep("x", randn({3, 4, 3}));
  const nn::MultiheadAttention mha(3, 1, {.batch_first = true});
  keep("in_proj_weight", mha.in_proj_weight);
  keep("in_proj_bias", mha.in_proj_bias);
  keep("out_proj_weight", mha.out_proj.weight);
  keep("out_proj_bias", mha.out_proj.bias);
  // the Attention class of cell 23, its weights then replaced
  for (int i = 0; i < 4; ++i) nn::Linear(3, 3, {.bias = false});
  keep("input_x", randn({3, 4, 6}));
  const nn::MultiheadAttention mha2(6, 2, {.batch_first = true});
  keep("mha2_in_proj_weight", mha2.in_proj_weight);
  keep("mha2_out_proj_weight", mha2.out_proj.weight);
  for (const std::string name : {"own_W_q", "own_W_k", "own_W_v", "own_W_o"})
    keep(name, nn::Linear(6, 6, {.bias = false}).weight);
  return drawn;
}

/// The numbers as the tutorial prints and copies them: four decimals.
Tensor four_decimals(const Tensor& x) {
  std::vector<float> values;
  for (const double value : x.to_vector()) {
    char text[32];
    std::snprintf(text, sizeof text, "%.4f", value);
    values.push_back(std::strtof(text, nullptr));
  }
  return tensor<float>(values, x.sizes());
}

Tensor seq_lens() { return tensor<std::int64_t>({4, 3, 2}); }
Tensor words() { return lt(arange(4), seq_lens().unsqueeze(-1)); }  // [B, L], True where a word is

void add_scores(Steps& steps, const Tutorial& g) {
  const auto query = [&g] { return g("additive_q").expand({3, 1, 4}); };
  const auto additive = [&g] { return Score::additive(g("additive_W_q"), g("additive_W_k"), g("additive_w")); };
  steps["additive_score"] = close(
      [&g] {
        return linear(tanh(linear(g("additive_X"), g("additive_W_k")) + linear(g("additive_q"), g("additive_W_q"))),
                      g("additive_w"))
            .squeeze(-1);
      },
      [=, &g] { return attention_scores(query(), g("additive_X"), {.score = additive()}).squeeze(1); });
  steps["additive_weights"] = close([&g] { return softmax(g("additive_score"), -1); },
                                    [=, &g] {
                                      return attention(query(), g("additive_X"), g("additive_X"),
                                                       {.score = additive(), .weights = Weights::full})
                                          .weights.squeeze(1);
                                    });
  steps["additive_context"] = close([&g] { return sum(g("additive_weights").unsqueeze(-1) * g("additive_X"), {1}); },
                                    [=, &g] {
                                      return additive_attention(query(), g("additive_X"), g("additive_X"),
                                                                g("additive_W_q"), g("additive_W_k"), g("additive_w"))
                                          .output.squeeze(1);
                                    },
                                    [&g] {
                                      const nn::AdditiveAttention module(4);
                                      module.load_state_dict({{"W_q.weight", g("additive_W_q")},
                                                              {"W_k.weight", g("additive_W_k")},
                                                              {"w.weight", g("additive_w")},
                                                              {"q", g("additive_q")}});
                                      return module(g("additive_X")).context;
                                    });
  steps["dot_score"] =
      close([&g] { return matmul(g("dot_X"), g("dot_q")).squeeze(-1); },
            [&g] {
              return attention_scores(g("dot_q").t().expand({3, 1, 4}), g("dot_X"), {.score = Score::dot()}).squeeze(1);
            },
            [&g] {
              const nn::DotProductAttention module(4);
              module.load_state_dict({{"q", g("dot_q")}});
              return module(g("dot_X")).scores;
            });
  steps["self_attention_score"] = close(
      [&g] { return matmul(linear(g("self_X"), g("self_W_q")), linear(g("self_X"), g("self_W_k")).transpose(1, 2)); },
      [&g] {
        return attention_scores(linear(g("self_X"), g("self_W_q")), linear(g("self_X"), g("self_W_k")),
                                {.score = Score::dot()});
      },
      [&g] {
        return attention_scores(g("self_X"), g("self_X"),
                                {.score = Score::general(matmul(g("self_W_q").t(), g("self_W_k")))});
      },
      [&g] {
        const nn::SelfAttentionScore module(4);
        module.load_state_dict({{"W_q.weight", g("self_W_q")}, {"W_k.weight", g("self_W_k")}});
        return module(g("self_X"));
      });
}

void add_one_head(Steps& steps, const Tutorial& g) {
  const auto masked = [&g] {
    return attention(g("Q"), g("K"), g("V"), {.key_lengths = seq_lens(), .weights = Weights::full});
  };
  steps["W"] = exact([&g] { return four_decimals(g("in_proj_weight")); });
  steps["W_out"] = exact([&g] { return four_decimals(g("out_proj_weight")); });
  steps["Q"] = close([&g] { return matmul(g("x"), g("W").slice(0, 0, 3).t()); },
                     [&g] { return linear(g("x"), g("W").slice(0, 0, 3)); });
  steps["K"] = close([&g] { return matmul(g("x"), g("W").slice(0, 3, 6).t()); },
                     [&g] { return linear(g("x"), g("W").slice(0, 3, 6)); });
  steps["V"] = close([&g] { return matmul(g("x"), g("W").slice(0, 6).t()); },
                     [&g] { return linear(g("x"), g("W").slice(0, 6)); });
  steps["attn_score"] = close([&g] { return matmul(g("Q"), g("K").transpose(1, 2)) / sqrt(scalar_tensor(3.0f)); },
                              [&g] { return attention_scores(g("Q"), g("K")); });
  steps["masked_score"] = exact([&g] { return g("attn_score").masked_fill(logical_not(words().unsqueeze(1)), -1e9); });
  steps["attn_weights"] = close([&g] { return softmax(g("masked_score"), 2); }, [=] { return masked().weights; });
  steps["context"] = close([&g] { return matmul(g("attn_weights"), g("V")); }, [=] { return masked().output; });
  steps["output"] =
      close([&g] { return matmul(g("context"), g("W_out").t()); }, [&g] { return linear(g("context"), g("W_out")); });
  steps["keep_mask"] = exact([] { return (words().unsqueeze(1) + zeros({3, 4, 4})).to(Dtype::boolean); });
  const auto by_class = [&g] {  // cell 24
    const auto project = [&](int row) { return linear(g("x"), g("W").slice(0, row, row + 3)); };
    return attention(project(0), project(3), project(6),
                     {.mask = Mask::key_padding(logical_not(words())), .weights = Weights::full});
  };
  steps["attention_class_output"] = close([=, &g] { return linear(by_class().output, g("W_out")); });
  steps["attention_class_weights"] = close([=] { return by_class().weights; });
}

nn::MultiheadAttentionResult call(const Tutorial& g, const std::string& prefix, const Tensor& x, std::int64_t heads,
                                  const nn::MultiheadAttentionCall& masks) {
  const std::int64_t embed_dim = x.size(-1);
  const nn::MultiheadAttention module(embed_dim, heads, {.batch_first = true});
  module.load_state_dict({{"in_proj_weight", g(prefix + "in_proj_weight")},
                          {"in_proj_bias", zeros({3 * embed_dim})},
                          {"out_proj.weight", g(prefix + "out_proj_weight")},
                          {"out_proj.bias", zeros({embed_dim})}});
  return module(x, x, x, masks);
}

void add_modules(Steps& steps, const Tutorial& g) {
  const auto by_attn_mask = [&g] { return call(g, "", g("x"), 1, {.attn_mask = logical_not(g("keep_mask"))}); };
  const auto by_padding = [&g] { return call(g, "", g("x"), 1, {.key_padding_mask = logical_not(words())}); };
  steps["torch_output_attn_mask"] = close([=] { return by_attn_mask().output; });
  steps["torch_weights_attn_mask"] = close([=] { return by_attn_mask().weights; });
  steps["torch_output_key_padding_mask"] = close([=] { return by_padding().output; });
  steps["torch_weights_key_padding_mask"] = close([=] { return by_padding().weights; });

  const auto mha2 = [&g](bool average) {
    return call(g, "mha2_", g("input_x"), 2,
                {.key_padding_mask = logical_not(words()), .average_attn_weights = average});
  };
  steps["mha2_torch_weights"] =
      close([=] { return mha2(true).weights; }, [&g] { return mean(g("mha2_torch_weights_per_head"), {1}); });
  steps["mha2_torch_weights_per_head"] = close([=] { return mha2(false).weights; });
  steps["mha2_torch_output"] = close([=] { return mha2(true).output; });
}

/// [B, L, D] -> [B * H, L, d]
Tensor split_heads(const Tensor& x, std::int64_t heads) {
  const std::int64_t batch = x.size(0), length = x.size(1), size = x.size(2) / heads;
  return x.reshape({batch, length, heads, size}).transpose(1, 2).reshape({batch * heads, length, size});
}

struct Own {
  Tensor w_q, w_k, w_v, w_o;
};

/// The tutorial's own class: heads folded into the batch, -1e9, softmax; in steps.
std::pair<Tensor, Tensor> own_in_steps(const Own& w, const Tensor& x) {
  const Tensor q = split_heads(linear(x, w.w_q), 2), k = split_heads(linear(x, w.w_k), 2),
               v = split_heads(linear(x, w.w_v), 2);
  const Tensor padding = logical_not(words()).reshape({3, 1, 1, 4}).expand({-1, 2, -1, -1}).reshape({6, 1, 4});
  const Tensor weights = softmax((matmul(q, k.transpose(1, 2)) / std::sqrt(3.0)).masked_fill(padding, -1e9), -1);
  const Tensor joined = matmul(weights, v).reshape({3, 2, 4, 3}).transpose(1, 2).reshape({3, 4, 6});
  return {linear(joined, w.w_o), mean(weights.reshape({3, 2, 4, 4}), {1})};
}

/// The same with heads beside the batch and one call.
std::pair<Tensor, Tensor> own_fused(const Own& w, const Tensor& x) {
  const auto heads = [](const Tensor& y) { return y.reshape({3, 4, 2, 3}).transpose(1, 2); };
  const auto result = attention(heads(linear(x, w.w_q)), heads(linear(x, w.w_k)), heads(linear(x, w.w_v)),
                                {.key_lengths = seq_lens(), .weights = Weights::head_average});
  return {linear(result.output.transpose(1, 2).reshape({3, 4, 6}), w.w_o), result.weights};
}

void add_own(Steps& steps, const Tutorial& g) {
  steps["split_heads"] = exact([] { return split_heads(arange(1, 33).reshape({2, 2, 8}), 2); });
  const auto first = [&g] { return Own{g("own_W_q"), g("own_W_k"), g("own_W_v"), g("own_W_o")}; };
  const auto loaded = [&g] {
    const Tensor w = g("mha2_in_proj_weight");
    return Own{w.slice(0, 0, 6), w.slice(0, 6, 12), w.slice(0, 12), g("mha2_out_proj_weight")};
  };
  steps["own_output_first"] = close([=, &g] { return own_in_steps(first(), g("input_x")).first; },
                                    [=, &g] { return own_fused(first(), g("input_x")).first; });
  steps["own_weights_first"] = close([=, &g] { return own_in_steps(first(), g("input_x")).second; },
                                     [=, &g] { return own_fused(first(), g("input_x")).second; });
  steps["mha2_own_output"] = close([=, &g] { return own_in_steps(loaded(), g("input_x")).first; },
                                   [=, &g] { return own_fused(loaded(), g("input_x")).first; });
  steps["mha2_own_weights"] = close([=, &g] { return own_in_steps(loaded(), g("input_x")).second; },
                                    [=, &g] { return own_fused(loaded(), g("input_x")).second; });
}

TEST(AttentionScoresTutorial, EveryStep) {
  const Tutorial tutorial("001");
  Steps steps;
  add_drawn(steps, draw());
  add_scores(steps, tutorial);
  add_one_head(steps, tutorial);
  add_modules(steps, tutorial);
  add_own(steps, tutorial);
  EXPECT_EQ(expect_every_step(tutorial, steps), 52u);
}

}  // namespace
}  // namespace attn::testing
