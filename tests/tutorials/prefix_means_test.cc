// tests/tutorials/prefix_means_test.cc: every step of tutorial 002: prefix means, causal heads, variance and scale.
#include "support/tutorial.h"

#include <attn/attention.h>
#include <attn/nn.h>
#include <attn/random.h>

#include <limits>

namespace attn::testing {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

using Drawn = std::vector<std::pair<std::string, Tensor>>;

Drawn draw() {
  Drawn drawn;
  const auto linears = [&](const std::string& cell, std::initializer_list<const char*> names) {
    for (const std::string name : names)
      drawn.emplace_back(cell + name, nn::Linear(32, 16, {.bias = false}).weight.detach());
  };
  manual_seed(1677674292);
  drawn.emplace_back("x", rand({2, 8, 2}));
  drawn.emplace_back("x_4_8_32", rand({4, 8, 32}));
  linears("", {"key_weight", "query_weight"});
  linears("cell35_", {"key_weight", "query_weight", "value_weight"});
  drawn.emplace_back("randn_k", randn({4, 8, 16}));
  drawn.emplace_back("randn_q", randn({4, 8, 16}));
  drawn.emplace_back("logits", randn({8}));
  linears("cell47_", {"key_weight", "query_weight", "value_weight"});
  return drawn;
}

Tensor by_loop(const Tensor& x) {
  const Tensor means = zeros(x.sizes());
  for (std::int64_t b = 0; b < x.size(0); ++b)
    for (std::int64_t t = 0; t < x.size(1); ++t) means[b][t].copy_(mean(x[b].slice(0, 0, t + 1), {0}));
  return means;
}

Tensor row_means(std::int64_t n) {
  const Tensor lower = tril(ones({n, n}));
  return lower / sum(lower, {1}, true);
}

Tensor causal_softmax(const Tensor& scores) {
  return softmax(scores.masked_fill(eq(tril(ones({8, 8})), 0), -infinity), -1);
}

void add_means(Steps& steps, const Tutorial& g) {
  const Tensor x = g("x");
  // Equal scores: attention with queries of zeros is the mean of what came before.
  const auto fused = [=] { return attention(zeros_like(x), x, x, {.mask = Mask::causal(), .weights = Weights::full}); };
  steps["xbow"] = close([=] { return by_loop(x); }, [=] { return fused().output; });
  steps["xbow_0"] = close([=] { return by_loop(x)[0]; }, [=] { return fused().output[0]; });
  steps["a"] = close([] { return row_means(4); });
  steps["prefix_mean_weights"] = close([] { return row_means(8); }, [=] { return fused().weights[0]; });
  steps["xbow2"] = close([=, &g] { return matmul(g("prefix_mean_weights"), x); });
  steps["softmax_of_masked_zeros"] =
      close([] { return causal_softmax(zeros({8, 8})); }, [=] { return fused().weights[1]; });
  steps["xbow3"] = close([=, &g] { return matmul(g("softmax_of_masked_zeros"), x); }, [=] { return fused().output; });
}

void add_head(Steps& steps, const Tutorial& g) {
  const Tensor x = g("x_4_8_32");
  const AttentionOptions unscaled{.score = Score::dot(), .mask = Mask::causal(), .weights = Weights::full};
  const auto q = [=, &g] { return linear(x, g("query_weight")); };
  const auto k = [=, &g] { return linear(x, g("key_weight")); };
  steps["scores"] =
      close([=] { return matmul(q(), k().transpose(-2, -1)); }, [=] { return attention_scores(q(), k(), unscaled); });
  steps["scores_0"] = exact([&g] { return g("scores")[0]; });
  steps["causal_weights"] =
      close([&g] { return causal_softmax(g("scores")); }, [=] { return attention(q(), k(), x, unscaled).weights; });
  steps["causal_weights_0"] = close([&g] { return causal_softmax(g("scores_0")); });
  steps["out_without_v_0"] = close([=, &g] { return matmul(g("causal_weights")[0], x[0]); },
                                   [=] { return attention(q(), k(), x, unscaled).output[0]; });

  const auto cell = [=, &g](const std::string& name, const std::string& which) {
    return linear(x, g(name + "_" + which + "_weight"));
  };
  const auto by_hand = [=](const std::string& name, double scale_scores, double scale_output) {
    const Tensor scores = matmul(cell(name, "query"), cell(name, "key").transpose(-2, -1)) * scale_scores;
    return (matmul(causal_softmax(scores), cell(name, "value")) * scale_output)[0];
  };
  const auto fused = [=](const std::string& name, AttentionOptions options) {
    options.mask = Mask::causal();
    return attention(cell(name, "query"), cell(name, "key"), cell(name, "value"), options).output[0];
  };
  steps["cell35_out_0"] =
      close([=] { return by_hand("cell35", 1, 1); }, [=] { return fused("cell35", {.score = Score::dot()}); });
  steps["cell47_out_as_written_0"] = close([=] { return by_hand("cell47", 1, 0.25); },
                                           [=] { return fused("cell47", {.score = Score::dot()}) * 0.25; });
  steps["cell47_out_corrected_0"] =
      close([=] { return by_hand("cell47", 0.25, 1); }, [=] { return fused("cell47", {}); },
            [=] { return fused("cell47", {.score = Score::dot(), .temperature = 4}); });
}

void add_variance(Steps& steps, const Tutorial& g) {
  steps["var_k"] = close([&g] { return var(g("randn_k")); });
  steps["var_q"] = close([&g] { return var(g("randn_q")); });
  steps["var_wei"] = close([&g] { return var(matmul(g("randn_q"), g("randn_k").transpose(-2, -1))); });
  steps["softmax_logits"] = close([&g] { return softmax(g("logits"), -1); });
  steps["softmax_10_logits"] = close([&g] { return softmax(g("logits") * 10, -1); });
}

TEST(PrefixMeansTutorial, EveryStep) {
  const Tutorial tutorial("002");
  Steps steps;
  add_drawn(steps, draw());
  add_means(steps, tutorial);
  add_head(steps, tutorial);
  add_variance(steps, tutorial);
  EXPECT_EQ(expect_every_step(tutorial, steps), 33u);
}

/// torch.allclose(xbow, xbow2) and (xbow, xbow3), which the tutorial prints as True.
TEST(PrefixMeansTutorial, TheThreeWaysAgree) {
  const Tutorial g("002");
  const Tensor xbow = by_loop(g("x"));
  EXPECT_TRUE(allclose(xbow, matmul(row_means(8), g("x"))));
  EXPECT_TRUE(allclose(xbow, matmul(causal_softmax(zeros({8, 8})), g("x"))));
}

}  // namespace
}  // namespace attn::testing
