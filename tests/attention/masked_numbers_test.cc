// tests/attention/masked_numbers_test.cc: where NaN and infinities of masked pairs may not go: the gradients of other
// rows and keys, of every order, are as if those numbers were finite.
#include <attn/attention.h>
#include <attn/autograd.h>
#include <attn/ops.h>
#include <attn/random.h>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace attn {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();

Tensor normal(const Dims& sizes, std::uint64_t seed) {
  Generator generator(seed);
  return randn(sizes, generator, Dtype::f64);
}

// Two documents of three tokens, both causal. A number that is not finite in key 4 reaches rows 4 and 5, and through
// them keys 3 to 5; one in row 5 reaches row 5 and keys 3 to 5.
const Tensor rows_apart = tensor<std::int64_t>({0, 1, 2, 3}), keys_apart = tensor<std::int64_t>({0, 1, 2});

Tensor allowed() {
  return tensor<bool>({true,  false, false, false, false, false, true,  true,  false, false, false, false,
                       true,  true,  true,  false, false, false, false, false, false, true,  false, false,
                       false, false, false, true,  true,  false, false, false, false, true,  true,  true},
                      {6, 6});
}

struct Case {
  std::string name;
  std::function<AttentionOptions(const Tensor& table)> options;
};

std::vector<Case> cases() {
  const auto documents = [] {
    return Mask::documents(tensor<std::int64_t>({0, 0, 0, 1, 1, 1})) & Mask::causal(Align::top_left);
  };
  std::vector<Case> all;
  all.push_back({"documents", [=](const Tensor&) { return AttentionOptions{.mask = documents()}; }});
  all.push_back({"mask", [](const Tensor&) { return AttentionOptions{.mask = Mask::attend(allowed())}; }});
  all.push_back({"bias", [](const Tensor&) {
                   return AttentionOptions{.bias = Bias::dense(where(allowed(), zeros({6, 6}, Dtype::f64), -infinity))};
                 }});
  all.push_back({"softcap, temperature, sinks, dropout", [=](const Tensor&) {
                   return AttentionOptions{.mask = documents(),
                                           .softcap = 2,
                                           .temperature = 0.8,
                                           .sinks = tensor<double>({0.5, 100}),
                                           .dropout_p = 0.3,
                                           .dropout_seed = 4};
                 }});
  all.push_back({"additive", [=](const Tensor&) {
                   return AttentionOptions{
                       .score = Score::additive(normal({3, 2}, 7), normal({3, 2}, 8), normal({3}, 9)),
                       .mask = documents()};
                 }});
  all.push_back({"score_mod", [=](const Tensor& x) {
                   const ScoreTable table(x, "table");
                   return AttentionOptions{.mask = documents(), .score_mod = [&](auto s, auto, auto, auto, auto j) {
                                             return s * s * table(j) + table(j) * table(0);
                                           }};
                 }});
  all.push_back({"a quotient that is infinite where a pair is masked", [=](const Tensor& x) {
                   const ScoreTable table(x, "table");
                   return AttentionOptions{.mask = documents(),
                                           .score_mod = ScoreExpression([&](auto s, auto, auto, auto i, auto j) {
                                                          return s * table(j) + table(0) / (i - j + 1);
                                                        }).aligned(Align::top_left)};
                 }});
  all.push_back({"score_mod masks", [=](const Tensor& x) {
                   const ScoreTable table(x, "table"), pairs(allowed(), "pairs");
                   return AttentionOptions{.score_mod = ScoreExpression([&](auto s, auto, auto, auto i, auto j) {
                                                          return where(pairs(i, j), s * s * table(j), -infinity);
                                                        }).aligned(Align::top_left)};
                 }});
  return all;
}

/// The gradients of q, k, v and the table by the sum of the output (and the weights) times the incoming gradients, then
/// those of the squares of what no bad number may reach.
std::vector<Tensor> gradients(const Case& c, std::vector<Tensor> x, const Tensor& incoming, bool weights, bool graph) {
  for (Tensor& one : x) one = one.clone().requires_grad_();
  AttentionOptions options = c.options(x[3]);
  if (weights) options.weights = Weights::full;
  const AttentionResult r = attention(x[0], x[1], x[2], options);
  std::vector<Tensor> results{r.output}, grads{incoming};
  if (weights) results.push_back(r.weights), grads.push_back(normal({1, 2, 6, 6}, 6));
  const auto apart = [](std::vector<Tensor> g) {
    g[0] = g[0].index_select(2, rows_apart);
    for (int n : {1, 2}) g[static_cast<std::size_t>(n)] = g[static_cast<std::size_t>(n)].index_select(2, keys_apart);
    if (g[3].defined()) g[3] = g[3].index_select(0, tensor<std::int64_t>({1, 2}));  // the expression reads 0 everywhere
    return g;
  };
  std::vector<Tensor> first =
      apart(grad(results, x, {.grad_outputs = grads, .create_graph = graph, .allow_unused = true}));
  if (!graph) return first;
  Tensor squares = sum(first[0] * first[0]) + sum(first[1] * first[1]) + sum(first[2] * first[2]);
  if (first[3].defined()) squares = squares + sum(first[3] * first[3]);
  const std::vector<Tensor> second = apart(grad({squares}, x, {.allow_unused = true}));
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

TEST(MaskedNumbers, ReachNoGradientOfAnotherPair) {
  for (const Case& c : cases()) {
    const std::vector<Tensor> x{normal({1, 2, 6, 2}, 1), normal({1, 1, 6, 2}, 2), normal({1, 2, 6, 3}, 3),
                                normal({6}, 4)};
    const Tensor incoming = normal({1, 2, 6, 3}, 5);
    for (const auto& [weights, graph] : {std::pair(false, false), {false, true}, {true, false}, {true, true}}) {
      const std::vector<Tensor> clean = gradients(c, x, incoming, weights, graph);
      for (int place = 0; place < 5; ++place)  // q, k, v, the table, the incoming gradient
        for (const double bad : {nan, infinity, -infinity}) {
          std::vector<Tensor> dirty = x;
          for (Tensor& one : dirty) one = one.clone();
          dirty.push_back(incoming.clone());
          const int dim = place == 3 ? 0 : 2;
          dirty[static_cast<std::size_t>(place)].select(dim, place == 0 || place == 4 ? 5 : 4).fill_(bad);
          const Tensor coming = dirty.back();
          dirty.pop_back();
          const std::vector<Tensor> found = gradients(c, dirty, coming, weights, graph);
          for (std::size_t n = 0; n < clean.size(); ++n) {
            ASSERT_EQ(found[n].defined(), clean[n].defined());
            EXPECT_TRUE(!clean[n].defined() || allclose(found[n], clean[n], 1e-12, 1e-14))
                << c.name << ", place " << place << ", " << bad << ", weights " << weights << ", graph " << graph
                << ", gradient " << n << ": " << found[n] << " instead of " << clean[n];
          }
        }
    }
  }
}

TEST(MaskedNumbers, OfARowWithoutAnIncomingGradient) {
  const Tensor incoming = ones({3, 2}, Dtype::f64);
  incoming.select(0, 2).fill_(0);
  for (const int place : {1, 2}) {
    std::vector<Tensor> x{normal({3, 2}, 1), normal({3, 2}, 2), normal({3, 2}, 3)};
    x[static_cast<std::size_t>(place)].select(0, 2).fill_(nan);
    for (Tensor& one : x) one.requires_grad_();
    const Tensor o = attention(x[0], x[1], x[2], {.mask = Mask::causal()}).output;
    const Tensor fused = grad({o}, x, {.grad_outputs = {incoming}, .retain_graph = true})[0].narrow(0, 0, 2),
                 unfused = grad({o}, x, {.grad_outputs = {incoming}, .create_graph = true})[0].detach().narrow(0, 0, 2);
    EXPECT_TRUE(allclose(unfused, fused, 1e-12, 1e-14)) << unfused << " instead of " << fused;
    EXPECT_TRUE(any(unfused));
  }
}

}  // namespace
}  // namespace attn
