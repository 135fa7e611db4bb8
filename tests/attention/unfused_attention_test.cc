// tests/attention/unfused_attention_test.cc: attention's gradients, their gradients, those of weights and scores,
// against differences.
#include <attn/attention.h>
#include <attn/autograd.h>
#include <attn/ops.h>
#include <attn/random.h>

#include "support/golden.h"

#include <gtest/gtest.h>

#include <cmath>

namespace attn {
namespace {

using Inputs = std::vector<Tensor>;

Tensor leaf(const Dims& sizes, std::uint64_t seed) {
  Generator generator(seed);
  return randn(sizes, generator, Dtype::f64).requires_grad_();
}

struct Case {
  std::string name;
  std::vector<Dims> shapes;  // q, k, v, then what `options` takes
  std::function<AttentionOptions(const Inputs&)> options = [](const Inputs&) { return AttentionOptions{}; };
};

std::vector<Case> cases() {
  const Dims q{2, 2, 3, 4}, k{2, 1, 5, 4}, v{2, 2, 5, 3};
  std::vector<Case> all = {
      {"plain", {q, k, v}}, {"rank 3", {{2, 3, 4}, {2, 5, 4}, {2, 5, 3}}}, {"rank 2", {{3, 4}, {5, 4}, {5, 3}}}};
  all.push_back(
      {"causal", {q, k, v}, [](const Inputs&) { return AttentionOptions{.mask = Mask::causal(Align::bottom_right)}; }});
  all.push_back({"a row that sees nothing", {q, k, v}, [](const Inputs&) {
                   return AttentionOptions{
                       .mask = Mask::attend(tensor<bool>({true, false, true, true, false, false, false, false, false,
                                                          false, true, true, true, true, true},
                                                         {3, 5}))};
                 }});
  all.push_back({"softcap, temperature, scale", {q, k, v}, [](const Inputs&) {
                   return AttentionOptions{.scale = 0.7, .softcap = 1.5, .temperature = 0.8};
                 }});
  all.push_back({"sinks", {q, k, v, {2}}, [](const Inputs& x) {
                   return AttentionOptions{.mask = Mask::causal(Align::top_left), .sinks = x[3]};
                 }});
  all.push_back({"dense bias", {q, k, v, {2, 1, 5}}, [](const Inputs& x) {
                   return AttentionOptions{.bias = Bias::dense(x[3])};
                 }});
  all.push_back({"alibi", {q, k, v, {2}}, [](const Inputs& x) {
                   return AttentionOptions{.bias = Bias::alibi(x[3], Align::bottom_right)};
                 }});
  all.push_back({"relative", {q, k, v, {4, 2}}, [](const Inputs& x) {
                   return AttentionOptions{.bias = Bias::relative(x[3], true, 4, Align::top_left)};
                 }});
  all.push_back({"lengths", {q, k, v}, [](const Inputs&) {
                   return AttentionOptions{.query_lengths = tensor<std::int64_t>({3, 2}),
                                           .key_lengths = tensor<std::int64_t>({4, 5}),
                                           .key_start = tensor<std::int64_t>({1, 0})};
                 }});
  all.push_back({"packed", {{5, 2, 4}, {6, 1, 4}, {6, 2, 3}}, [](const Inputs&) {
                   return AttentionOptions{.mask = Mask::causal(Align::top_left),
                                           .cu_seqlens_q = tensor<std::int64_t>({0, 2, 5}),
                                           .cu_seqlens_k = tensor<std::int64_t>({0, 4, 6})};
                 }});
  all.push_back({"dropout by counter", {q, k, v}, [](const Inputs&) {
                   return AttentionOptions{
                       .mask = Mask::causal(Align::bottom_right), .dropout_p = 0.4, .dropout_seed = 3};
                 }});
  all.push_back({"packed, dropout by counter", {{5, 2, 4}, {6, 1, 4}, {6, 2, 3}}, [](const Inputs&) {
                   return AttentionOptions{.cu_seqlens_q = tensor<std::int64_t>({0, 2, 5}),
                                           .cu_seqlens_k = tensor<std::int64_t>({0, 4, 6}),
                                           .dropout_p = 0.4,
                                           .dropout_seed = 3};
                 }});
  all.push_back({"score_mod with tables", {q, k, v, {2}, {9}}, [](const Inputs& x) {
                   const ScoreTable slope(x[3], "slope"), table(x[4], "table");
                   return AttentionOptions{.mask = Mask::causal(Align::bottom_right),
                                           .score_mod = [&](auto s, auto, auto h, auto i, auto j) {
                                             return ScoreExpression(tanh(s * 0.3) * 2.0 - slope(h) * abs(i - j) +
                                                                    table(min(max(j - i + 4, 0), 8)))
                                                 .aligned(Align::bottom_right);
                                           }};
                 }});
  all.push_back({"score_mod with every operation", {q, k, v, {2, 3}}, [](const Inputs& x) {
                   const ScoreTable table(x[3], "table");
                   return AttentionOptions{
                       .score_mod =
                           [&](auto s, auto b, auto h, auto i, auto j) {
                             const ScoreExpression row = i % 3, even = (j % 2 == 0) & ~((h > 0) | (i != 1));
                             return ScoreExpression(where(even, s, s * 0.5) + exp(-abs(s)) +
                                                    max(s, table(b, row)) / (2.0 + j) - min(table(h, row) * s, 0.25) +
                                                    floor_divide(j, 2))
                                 .aligned(Align::top_left);
                           },
                       .softcap = 3};
                 }});
  all.push_back({"packed score_mod", {{5, 2, 4}, {6, 1, 4}, {6, 2, 3}, {2, 4}}, [](const Inputs& x) {
                   const ScoreTable table(x[3], "table");
                   return AttentionOptions{.score_mod = ScoreExpression([&](auto s, auto b, auto, auto i, auto j) {
                                                          return where(j <= i + 1, s + table(b, j),
                                                                       -std::numeric_limits<double>::infinity());
                                                        }).aligned(Align::top_left),
                                           .cu_seqlens_q = tensor<std::int64_t>({0, 2, 5}),
                                           .cu_seqlens_k = tensor<std::int64_t>({0, 4, 6})};
                 }});
  all.push_back({"general", {{2, 3, 4}, {2, 5, 3}, {2, 5, 3}, {4, 3}}, [](const Inputs& x) {
                   return AttentionOptions{.score = Score::general(x[3])};
                 }});
  all.push_back({"additive", {{2, 3, 4}, {2, 5, 3}, {2, 5, 3}, {6, 4}, {6, 3}, {6}}, [](const Inputs& x) {
                   return AttentionOptions{.score = Score::additive(x[3], x[4], x[5])};
                 }});
  return all;
}

TEST(PlainGradient, FirstAndSecondDerivativesOfTheOutput) {
  for (const Case& c : cases()) {
    Inputs inputs;
    for (std::size_t i = 0; i < c.shapes.size(); ++i) inputs.push_back(leaf(c.shapes[i], 3 + i));
    EXPECT_EQ(check_gradients([&](const Inputs& x) { return attention(x[0], x[1], x[2], c.options(x)).output; }, inputs,
                              {.second = true}),
              "")
        << c.name;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      Inputs alone;
      for (const Tensor& x : inputs) alone.push_back(x.detach());
      alone[i].requires_grad_();
      EXPECT_EQ(check_gradients([&](const Inputs& x) { return attention(x[0], x[1], x[2], c.options(x)).output; },
                                alone, {.second = true}),
                "")
          << c.name << ", input " << i << " alone";
    }
  }
}

TEST(PlainGradient, OfWeights) {
  for (const Case& c : cases())
    for (const Weights& kind : {Weights(Weights::full), Weights(Weights::head_average), Weights(Weights::column_sums),
                                Weights::rows(tensor<std::int64_t>({2, 0, 2})), Weights::top_k(2)}) {
      Inputs inputs;
      for (std::size_t i = 0; i < c.shapes.size(); ++i) inputs.push_back(leaf(c.shapes[i], 3 + i));
      const auto both = [&](const Inputs& x) {
        AttentionOptions options = c.options(x);
        options.weights = kind;
        const AttentionResult result = attention(x[0], x[1], x[2], options);
        return cat({result.weights.flatten(), result.output.flatten()});
      };
      EXPECT_EQ(check_gradients(both, inputs), "") << c.name;
    }
}

TEST(PlainGradient, OfOneTensorInThreePlaces) {
  const Tensor x = leaf({2, 3, 4}, 1);
  EXPECT_EQ(
      check_gradients([](const Inputs& in) { return attention(in[0], in[0], in[0]).output; }, {x}, {.second = true}),
      "");
  EXPECT_EQ(check_gradients([](const Inputs& in) { return attention(in[0], in[0] * 2, tanh(in[0])).output; }, {x},
                            {.second = true}),
            "");
}

TEST(PlainGradient, OfDropoutAndScores) {
  const Inputs inputs = {leaf({2, 2, 3, 4}, 1), leaf({2, 2, 5, 4}, 2), leaf({2, 2, 5, 3}, 3)};
  const auto dropped = [](const Inputs& x) {
    Generator generator(9);
    return scaled_dot_product_attention(x[0], x[1], x[2], {.dropout_p = 0.4, .generator = &generator});
  };
  EXPECT_EQ(check_gradients(dropped, inputs, {.second = true}), "");
  EXPECT_EQ(check_gradients([](const Inputs& x) { return attention_scores(x[0], x[1]); }, {inputs[0], inputs[1]},
                            {.second = true}),
            "");
  const Inputs additive = {leaf({3, 4}, 1), leaf({5, 3}, 2), leaf({6, 4}, 3), leaf({6, 3}, 4), leaf({6}, 5)};
  EXPECT_EQ(
      check_gradients(
          [](const Inputs& x) { return attention_scores(x[0], x[1], {.score = Score::additive(x[2], x[3], x[4])}); },
          additive, {.second = true}),
      "");
}

TEST(PlainGradient, HiddenNaNStaysHidden) {
  Tensor k = leaf({1, 1, 4, 2}, 1).detach(), q = leaf({1, 1, 3, 2}, 2), v = leaf({1, 1, 4, 2}, 3).detach();
  k.select(2, 3).fill_(std::numeric_limits<double>::quiet_NaN());
  v.select(2, 3).fill_(std::numeric_limits<double>::infinity());
  k.requires_grad_(), v.requires_grad_();
  const Tensor o = attention(q, k, v, {.key_lengths = tensor<std::int64_t>({3})}).output;
  for (const Tensor& g : grad({sum(o * o)}, {q, k, v}, {.create_graph = true}))
    for (const double value : g.to_vector()) EXPECT_TRUE(std::isfinite(value));
}

TEST(PlainGradient, WhatABiasHidesStaysHidden) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const bool changed : {false, true}) {
    Tensor q = leaf({1, 2, 3, 2}, 2), k = leaf({1, 2, 4, 2}, 1).detach(), v = leaf({1, 2, 4, 2}, 3).detach();
    k.select(2, 3).fill_(std::numeric_limits<double>::quiet_NaN());
    v.select(2, 3).fill_(infinity);
    k.requires_grad_(), v.requires_grad_();
    AttentionOptions options{.bias = Bias::dense(tensor<double>({0, 0, 0, -infinity})), .weights = Weights::full};
    if (changed) options.score_mod = [](auto s, auto, auto, auto, auto) { return s * 2.0; };
    const AttentionResult r = attention(q, k, v, options);
    for (const Tensor& g :
         grad({sum(r.output * r.output), sum(r.weights * r.weights)}, {q, k, v}, {.create_graph = true}))
      for (const double value : g.to_vector()) EXPECT_TRUE(std::isfinite(value));
  }
}

TEST(PlainGradient, OfAnExpressionWithoutTheScoreIsZero) {
  const Tensor q = leaf({1, 2, 3, 2}, 2), k = leaf({1, 2, 4, 2}, 1), v = leaf({1, 2, 4, 2}, 3);
  const AttentionOptions options{.score_mod = [](auto, auto, auto h, auto, auto j) { return 0.5 * h * j; }};
  for (const bool graph : {false, true}) {
    const std::vector<Tensor> g = grad({sum(attention(q, k, v, options).output)}, {q, k, v}, {.create_graph = graph});
    EXPECT_TRUE(same_bits(g[0].detach(), zeros({1, 2, 3, 2}, Dtype::f64)));
    EXPECT_TRUE(same_bits(g[1].detach(), zeros({1, 2, 4, 2}, Dtype::f64)));
    EXPECT_TRUE(any(g[2]));
  }
}

TEST(PlainGradient, OfABf16TableIsRoundedOnce) {
  Generator generator(5);
  const Tensor q = randn({1, 2, 40, 4}, generator, Dtype::f64), k = randn({1, 2, 40, 4}, generator, Dtype::f64),
               v = randn({1, 2, 40, 4}, generator, Dtype::f64);
  const Tensor weight = randn({1, 2, 40, 4}, generator, Dtype::f64);
  Tensor table = tensor<double>({0.75, -1.25}).to(Dtype::bf16);
  table.requires_grad_();
  const ScoreTable by_head(table);
  const AttentionOptions options{.score_mod = [&](auto s, auto, auto h, auto, auto) { return by_head(h) * tanh(s); }};
  const auto gradient = [&](bool graph) {
    return grad(sum(attention(q, k, v, options).output * weight), table, {.create_graph = graph}).detach();
  };
  EXPECT_TRUE(same_bits(gradient(true), gradient(false)));
}

// A number that all pairs share gets a sum of sums, as in the fused pass: one chain over 39,200 pairs is seven times as
// far from the truth.
TEST(PlainGradient, OfASharedNumberIsAsNearAsTheFusedOne) {
  const auto of_gain = [](std::uint64_t seed, Dtype dtype, bool definition) {
    Generator generator(seed);
    const Dims sizes{2, 4, 70, 16};
    const Tensor q = randn(sizes, generator), k = randn(sizes, generator), v = randn(sizes, generator),
                 w = randn(sizes, generator), gain = ones({}, dtype).requires_grad_();
    const ScoreTable number(gain);
    const Tensor output = attention(q.to(dtype), k.to(dtype), v.to(dtype),
                                    {.score_mod = [&](auto s, auto, auto, auto, auto) { return number() * s; }})
                              .output;
    return grad((output * w.to(dtype)).sum(), gain, {.create_graph = definition}).item();
  };
  double fused = 0, plain = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const double truth = of_gain(seed, Dtype::f64, false);
    fused += std::abs(of_gain(seed, Dtype::f32, false) - truth);
    plain += std::abs(of_gain(seed, Dtype::f32, true) - truth);
  }
  EXPECT_LE(plain, 2 * fused);
}

TEST(PlainGradient, AdditiveIsTorchs) {
  int compared = 0;
  for (const auto& c : testing::golden("torch_semantics.json").at("cases")) {
    if (c.at("op") != "additive_attention") continue;
    SCOPED_TRACE(c.at("name").get<std::string>());
    std::map<std::string, Tensor> in;
    for (const auto& [name, value] : c.at("inputs").items()) in[name] = testing::golden_tensor(value);
    for (const auto& entry : c.at("expect_grads").items()) in.at(entry.key()).requires_grad_();
    AttentionOptions options;
    if (in.count("mask") || in.count("attn_mask"))
      options.mask = Mask::attend(in.count("mask") ? in["mask"] : in["attn_mask"]);
    additive_attention(in["query"], in["key"], in["value"], in["w_q"], in["w_k"], in["v"], options)
        .output.backward(testing::golden_tensor(c.at("grad_of").at("output")));
    for (const auto& [name, value] : c.at("expect_grads").items()) {
      EXPECT_TRUE(testing::within_error_rule(in.at(name).grad(), testing::golden_tensor(value),
                                             c.at("torch_error_vs_float64").at("grad " + name)))
          << name;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 18);
}

}  // namespace
}  // namespace attn
