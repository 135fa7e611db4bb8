// tests/attention/score_gradient_test.cc: score expressions in the fused backward pass: their gradients, bits on every
// target and thread count, memory.
#include <attn/autograd.h>
#include <attn/runtime.h>

#include "attention/calls.h"
#include "attention/random_score_options.h"
#include "runtime/memory.h"
#include "support/golden.h"
#include "verify/run.h"

#include <gtest/gtest.h>

namespace attn::testing {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();

/// The floating tensors that an expression looks up, each once.
std::vector<Tensor> tables_of(const ScoreExpression& e) {
  std::vector<Tensor> tables;
  for (const ScoreExpression& lookup : e.lookups())
    if (std::none_of(tables.begin(), tables.end(), [&](const Tensor& x) { return x.impl() == lookup.tensor().impl(); }))
      tables.push_back(lookup.tensor());
  return tables;
}

/// Of q, k, v and what the expression looks up, from the gradient of the output: in the fused pass, or by the
/// definition, whose gradients have gradients of their own.
std::vector<Tensor> gradients(const cases::Inputs& in, bool by_definition) {
  std::vector<Tensor> wanted{in.q, in.k, in.v};
  for (const Tensor& table : tables_of(in.options.score_mod)) wanted.push_back(table);
  for (Tensor& x : wanted) x.requires_grad_();
  const Tensor output = attention(in.q, in.k, in.v, in.options).output;
  return grad({output}, wanted, {.grad_outputs = {in.doutput}, .create_graph = by_definition, .allow_unused = true});
}

/// Two orders of the same f64 sums: apart by no more than what the error rule gives f32 beside the largest gradient of
/// the call (some are 0, as sums of what cancels).
void expect_near(const std::vector<Tensor>& ours, const std::vector<Tensor>& definition) {
  ASSERT_EQ(ours.size(), definition.size());
  std::vector<Tensor> flat, truth;
  for (std::size_t n = 0; n < ours.size(); ++n) {
    flat.push_back(ours[n].flatten());
    truth.push_back(definition[n].defined() ? definition[n].detach().flatten() : zeros({ours[n].numel()}, Dtype::f64));
  }
  EXPECT_TRUE(within_error_rule(cat(flat).to(Dtype::f32), cat(truth).to(Dtype::f32), 0));
}

cases::Inputs operands(const Dims& q, const Dims& k, std::int64_t value_dim, Dtype dtype) {
  cases::Inputs in;
  in.q = normal(q, 1, dtype);
  in.k = normal(k, 2, dtype);
  in.v = normal({k[0], k[1], k[2], value_dim}, 3, dtype);
  in.doutput = normal({q[0], q[1], q[2], value_dim}, 4, dtype);
  return in;
}

/// Random expressions with random options.
cases::Inputs random_call(unsigned seed, Dtype dtype) {
  std::mt19937 random(seed);
  const ScoreCounts n = random_score_counts(random, {1, 15, 64, 130});
  cases::Inputs in = operands({n.batch, n.heads, n.rows, 8}, {n.batch, n.k_heads, n.keys, 8}, 5, dtype);
  in.options = random_score_options(random, seed, n, dtype);
  if (random() % 3 == 0) in.options.dropout_p = 0.3, in.options.dropout_seed = seed;
  return in;
}

TEST(ScoreGradient, OfRandomExpressionsIsThatOfTheDefinition) {
  for (unsigned seed = 1; seed <= 80; ++seed) {
    const cases::Inputs in = random_call(seed, Dtype::f64);
    SCOPED_TRACE(::testing::Message() << seed << " " << in.q.size(2) << " x " << in.k.size(2) << ": "
                                      << in.options.score_mod.to_string());
    expect_near(gradients(in, false), gradients(in, true));
  }
}

TEST(ScoreGradient, OfRandomExpressionsHasTheBitsOfTheSpecificationOnEveryTarget) {
  const std::vector<cases::Way> ways = cases::all_ways();
  int compared = 0;
  for (unsigned seed = 1; seed <= 60; ++seed) {
    const Dtype dtype = seed % 3 == 0 ? Dtype::f64 : Dtype::f32;
    const cases::Inputs in = random_call(seed, dtype);
    SCOPED_TRACE(::testing::Message() << seed << " " << name_of(dtype) << " " << in.q.size(2) << " x " << in.k.size(2)
                                      << ": " << in.options.score_mod.to_string());
    const cases::Case c = cases::parse_case("attention_backward " + std::string(name_of(dtype)));
    const cases::Results expected = cases::by_specification(c, in);
    for (const cases::Way& way : ways) {
      const cases::Results results = way.run(c, in);
      for (std::size_t n = 0; n < results.size(); ++n, ++compared)
        ASSERT_TRUE(bits_equal(results[n].values, expected[n].values)) << way.name << " " << results[n].name;
    }
  }
  EXPECT_GT(compared, 0);
}

/// An expression for each way in which pairs share elements.
struct Sharing {
  const char* text;
  std::vector<std::pair<std::string, Dims>> tables;
};
const std::vector<Sharing>& sharings() {
  static const std::vector<Sharing> all = {
      {"s - slope[h] * (i(top_left) - j)", {{"slope", {4}}}},  // heads
      // everything
      {"c * s + d", {{"c", {}}, {"d", {}}}},
      // heads of items
      {"s * t[b, h]", {{"t", {3, 4}}}},
      {"s + t[i(top_left)] * s", {{"t", {200}}}},                      // rows
      {"abs(s) * t[h, i(bottom_right) // 7 + 20]", {{"t", {4, 60}}}},  // rows, several the same
      {"s + t[j] * 0.5", {{"t", {150}}}},                              // keys
      {"tanh(s) + t[b, h, j // 3]", {{"t", {3, 4, 50}}}},              // keys, several the same
      // distances
      {"s + t[h, j - i(top_left) + 199]", {{"t", {4, 349}}}},
      // distances, several the same
      {"s * t[max(min(j - i(bottom_right), 9), -9) + 9]", {{"t", {19}}}},
      // pairs
      {"s + t[i(top_left), j]", {{"t", {200, 150}}}},
      // pairs of heads
      {"s + t[j, h, i(top_left)] * abs(s)", {{"t", {150, 4, 200}}}},
      {"s + t[b, h, i(top_left), j]", {{"t", {3, 4, 200, 150}}}},  // all
      {"s + rows[i(top_left) // 16 - j // 16 + 9] + cols[i(top_left) % 16 - j % 16 + 15]",
       {{"rows", {22}}, {"cols", {31}}}},  // anything else
      // a tensor in two places
      {"s + t[h, (i(top_left) * 7 + j * 3) % 29] - t[h, j % 29]", {{"t", {4, 29}}}},
      // the same, pairs in both
      {"s + t[i(top_left), j] + t[j, min(i(top_left), 149)]", {{"t", {200, 150}}}},
  };
  return all;
}

cases::Inputs sharing_call(const Sharing& sharing, Dtype dtype, std::int64_t key_heads, bool lengths) {
  cases::Inputs in = operands({3, 4, 200, 16}, {3, key_heads, 150, 16}, 9, dtype);
  std::vector<std::pair<std::string, Tensor>> tables;
  for (const auto& [name, sizes] : sharing.tables) tables.emplace_back(name, normal(sizes, 11 + tables.size(), dtype));
  in.options.score_mod = ScoreExpression::parse(sharing.text, tables);
  in.options.mask = Mask::causal(Align::bottom_right) | Mask::window(-1, 3, Align::top_left);
  if (!lengths) return in;
  in.options.key_lengths = tensor<std::int64_t>({150, 70, 130});
  in.options.key_start = tensor<std::int64_t>({20, 0, 3});
  in.options.query_lengths = tensor<std::int64_t>({200, 140, 3});
  in.k.select(0, 1).narrow(1, 70, 1).fill_(nan);  // hidden, and 0 does not silence it: the specification decides
  return in;
}

TEST(ScoreGradient, OfATensorIsReducedToItsShape) {
  for (const Sharing& sharing : sharings())
    for (const bool lengths : {false, true}) {
      SCOPED_TRACE(sharing.text);
      const cases::Inputs in = sharing_call(sharing, Dtype::f64, 2, lengths);
      expect_near(gradients(in, false), gradients(in, true));
    }
}

TEST(ScoreGradient, HasTheSameBitsOnAnyNumberOfThreads) {
  const int before = num_threads();
  const cases::Case c = cases::parse_case("attention_backward f32");
  for (const Sharing& sharing : sharings())
    for (const std::int64_t key_heads : {4, 2, 1})
      for (const bool lengths : {false, true}) {
        SCOPED_TRACE(::testing::Message()
                     << sharing.text << ", " << key_heads << " heads of keys" << (lengths ? ", lengths" : ""));
        const cases::Inputs in = sharing_call(sharing, Dtype::f32, key_heads, lengths);
        const cases::Results expected = cases::by_specification(c, in);
        for (const int threads : {1, 2, 3, 8}) {
          set_num_threads(threads);
          const cases::Results results = cases::library_way(threads).run(c, in);
          ASSERT_EQ(results.size(), expected.size());
          for (std::size_t n = 0; n < results.size(); ++n)
            ASSERT_TRUE(bits_equal(results[n].values, expected[n].values))
                << threads << " threads, " << results[n].name;
        }
      }
  set_num_threads(before);
}

/// Documents stand at the same positions again, with rows and keys elsewhere.
TEST(ScoreGradient, OfDocumentsAndPackedSequencesAddsUp) {
  const int before = num_threads();
  Tensor dense = normal({70, 70}, 7, Dtype::f64), slopes = normal({2}, 8, Dtype::f64);
  const Tensor offsets = tensor<std::int64_t>({0, 70, 90, 151});
  cases::Inputs in = operands({151, 2, 8}, {151, 2, 8}, 8, Dtype::f64);
  in.q = normal({151, 2, 8}, 1, Dtype::f64), in.k = normal({151, 2, 8}, 2, Dtype::f64),
  in.v = normal({151, 2, 8}, 3, Dtype::f64), in.doutput = normal({151, 2, 8}, 4, Dtype::f64);
  in.options = {
      .mask = Mask::causal(Align::top_left),
      .score_mod = ScoreExpression::parse("s + t[i, j] - slope[h] * (i - j)", {{"t", dense}, {"slope", slopes}}),
      .cu_seqlens_q = offsets,
      .cu_seqlens_k = offsets};
  const std::vector<Tensor> alone = gradients(in, false);
  expect_near(alone, gradients(in, true));
  for (const int threads : {1, 2, 3, 8}) {
    set_num_threads(threads);
    const std::vector<Tensor> again = gradients(in, false);
    for (std::size_t n = 0; n < alone.size(); ++n) EXPECT_TRUE(bits_equal(again[n], alone[n])) << threads;
  }
  set_num_threads(before);
}

TEST(ScoreGradient, WhatIsHiddenGetsNoneAndGivesNone) {
  cases::Inputs in = operands({1, 2, 70, 8}, {1, 2, 80, 8}, 8, Dtype::f32);
  Tensor table = normal({80}, 7), padding = zeros({1, 1, 1, 80}, Dtype::f32);
  padding.slice(3, 60).fill_(-infinity);
  in.k.slice(2, 60).fill_(nan);
  in.v.slice(2, 60).fill_(infinity);
  in.options.bias = Bias::dense(padding);
  in.options.score_mod = ScoreExpression::parse("where(j < 50, exp(s) * t[j], -inf)", {{"t", table}});
  const std::vector<Tensor> g = gradients(in, false);
  for (const Tensor& x : g)
    for (const double value : x.to_vector()) ASSERT_TRUE(std::isfinite(value));
  EXPECT_EQ(max(abs(g[3].slice(0, 50))).item(), 0);
  EXPECT_GT(max(abs(g[3])).item(), 0);
  EXPECT_EQ(max(abs(g[1].slice(2, 50))).item(), 0);
  EXPECT_EQ(max(abs(g[2].slice(2, 50))).item(), 0);
}

/// A built-in option said as an expression: the same weights, so the same gradients of q, k and v to the bit.
TEST(ScoreGradient, OfTheBuiltInOnesAsExpressionsHasTheirBits) {
  cases::Inputs in = operands({2, 4, 130, 16}, {2, 2, 130, 16}, 16, Dtype::f32), built_in = in;
  in.options.mask = built_in.options.mask = Mask::causal();
  const auto expect_same = [&](std::size_t tables) {
    const cases::Case c = cases::parse_case("attention_backward f32");
    const cases::Results a = cases::library_way(2).run(c, in), b = cases::library_way(2).run(c, built_in);
    for (std::size_t n = 0; n < 3 + tables; ++n) EXPECT_TRUE(bits_equal(a[n].values, b[n].values)) << n;
  };
  const Tensor slopes = Bias::alibi_slopes(4), dense = normal({4, 130, 130}, 5), item = normal({2, 1, 130, 130}, 6);
  in.options.score_mod = ScoreExpression::parse("s + slope[h] * (j - i)", {{"slope", slopes}});
  built_in.options.bias = Bias::alibi(slopes);
  expect_same(0);
  in.options.mask = built_in.options.mask = {};
  in.options.score_mod = ScoreExpression::parse("s - slope[h] * abs(j - i)", {{"slope", slopes}});
  built_in.options.bias = Bias::alibi(slopes, Align::unset, true);
  expect_same(0);
  in.options.mask = built_in.options.mask = Mask::causal();
  in.options.score_mod = ScoreExpression::parse("s + t[h, i, j]", {{"t", dense}});
  built_in.options.bias = Bias::dense(dense);
  expect_same(1);
  in.options.score_mod = ScoreExpression::parse("s + t[b, 0, i, j]", {{"t", item}});
  built_in.options.bias = Bias::dense(item);
  expect_same(1);
}

TEST(ScoreGradient, OfACallWithoutScoresIsZero) {
  for (const auto& [q_sizes, k_sizes] : {std::pair(Dims{1, 1, 0, 4}, Dims{1, 1, 0, 4}),
                                         {Dims{1, 2, 3, 4}, Dims{1, 2, 0, 4}},
                                         {Dims{1, 2, 0, 4}, Dims{1, 2, 3, 4}},
                                         {Dims{0, 2, 3, 4}, Dims{0, 2, 5, 4}}})
    for (const std::int64_t rows : {0, 3})
      for (const bool graph : {false, true}) {
        std::vector<Tensor> x{normal(q_sizes, 1), normal(k_sizes, 2), normal(k_sizes, 3), normal({rows}, 4),
                              normal({rows, 2}, 5)};
        for (Tensor& one : x) one.requires_grad_();
        const ScoreTable table(x[3], "table"), bias(x[4], "bias");
        AttentionOptions options;
        options.score_mod = ScoreExpression([&](auto s, auto, auto h, auto i, auto j) {
                              return s * table(i) + tanh(table(j)) + bias(i, h);
                            }).aligned(Align::top_left);
        const Tensor output = attention(x[0], x[1], x[2], options).output;
        const std::vector<Tensor> found =
            grad({output}, x, {.grad_outputs = {ones(output.sizes())}, .create_graph = graph});
        for (std::size_t n = 0; n < x.size(); ++n)
          EXPECT_TRUE(same_bits(found[n].detach(), zeros(x[n].sizes()))) << n << ", rows " << rows;
      }
}

TEST(ScoreGradient, HoldsNoPairs) {
  const std::int64_t tokens = 8192;
  Tensor q = normal({1, 1, tokens, 8}, 1), slope = normal({1}, 2), table = normal({257}, 3), far = normal({tokens}, 4),
         places = normal({31}, 5);
  for (Tensor* x : {&q, &slope, &table, &far, &places}) x->requires_grad_();
  const AttentionOptions options{
      .mask = Mask::causal(),
      .score_mod = ScoreExpression::parse("tanh(s) - slope[h] * (i - j) + table[max(min(j - i, 128), -128) + 128] + "
                                          "far[j] + places[(i // 32 + j) % 31]",
                                          {{"slope", slope}, {"table", table}, {"far", far}, {"places", places}})};
  const int before_threads = num_threads();
  set_num_threads(2);
  const auto both = [&] { attention(q, q, q, options).output.sum().backward(); };
  both();
  const std::size_t before = runtime::allocated_bytes();
  runtime::reset_peak();
  both();
  // gradients, the output, and what the tape keeps
  const std::size_t rows = 16 * static_cast<std::size_t>(q.numel()) * sizeof(float);
  EXPECT_LT(runtime::peak_bytes() - before, rows);
  EXPECT_LT(rows, static_cast<std::size_t>(tokens) * tokens * sizeof(float) / 32);
  set_num_threads(before_threads);
}

}  // namespace
}  // namespace attn::testing
