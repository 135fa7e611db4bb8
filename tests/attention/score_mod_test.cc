// tests/attention/score_mod_test.cc: score expressions inside attention: their values, their bits on every target,
// however the work is cut.
#include <attn/autograd.h>
#include <attn/runtime.h>

#include "attention/calls.h"
#include "attention/random_score_options.h"
#include "support/errors.h"
#include "support/golden.h"
#include "verify/run.h"

#include <gtest/gtest.h>

namespace attn::testing {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();

template <typename T>
void expect_plain_values(unsigned seed) {
  const std::int64_t batch = 2, heads = 3, rows = 5, keys = 9;
  RandomScores<T> random(seed, batch, heads, false);
  const auto tree = random.tree(static_cast<int>(seed % 5) + 1);
  SCOPED_TRACE(tree.expression.to_string());
  const Tensor scores = normal({batch, heads, rows, keys}, seed, dtype_of<T>);
  const Tensor ours = tree.expression.apply(scores);
  Tensor plain = empty(scores.sizes(), dtype_of<T>);
  T* to = plain.data<T>();
  const T* s = scores.data<T>();
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < keys; ++j) *to++ = tree.value({b, h, i + keys - rows, j, *s++});
  ASSERT_TRUE(bits_equal(ours, plain));
}

TEST(ScoreMod, RandomExpressionsAreWhatTheirOperationsSay) {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    expect_plain_values<float>(seed);
    expect_plain_values<double>(seed);
  }
}

/// FlexAttention's results and torch's gradients, by the error rule.
TEST(ScoreMod, GivesWhatFlexAttentionGives) {
  const nlohmann::json& document = golden("score/torch_score_mod.json");
  const auto named = [&](const char* name) { return golden_tensor(document.at(name)); };
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const auto& [name, tensor] : document.at("tensors").items()) tensors.emplace_back(name, golden_tensor(tensor));
  const Tensor scores = named("scores");
  const auto near = [](const Tensor& ours, const nlohmann::json& torch) {
    return within_error_rule(ours, golden_tensor(torch), torch.at("error").get<double>());
  };
  ASSERT_EQ(document.at("cases").size(), 10u);
  for (const auto& c : document.at("cases")) {
    SCOPED_TRACE(c.at("score_mod").get<std::string>());
    const ScoreExpression e = ScoreExpression::parse(c.at("score_mod").get<std::string>(), tensors);
    EXPECT_EQ(e.to_string(), c.at("score_mod").get<std::string>());
    EXPECT_TRUE(near(attention(named("q"), named("k"), named("v"), {.score_mod = e}).output, c.at("output")));
    EXPECT_TRUE(near(e.apply(scores), c.at("modified")));
    EXPECT_TRUE(near(derivative(e, ScoreExpression::score()).apply(scores), c.at("by s")));
    // a tensor's gradient: each pair's derivative, at the index that the pair looks up
    for (const auto& [name, tensor] : tensors) {
      if (!c.contains("by " + name)) continue;
      std::vector<double> total(static_cast<std::size_t>(tensor.numel()), 0.0);
      for (const ScoreExpression& lookup : e.lookups()) {
        if (lookup.tensor().impl() != tensor.impl()) continue;
        const std::vector<double> by = derivative(e, lookup).apply(scores).to_vector();
        std::vector<double> place(by.size(), 0.0);
        for (int d = 0; d < tensor.dim(); ++d) {
          const std::vector<double> index = lookup.index()[static_cast<std::size_t>(d)].apply(scores).to_vector();
          for (std::size_t n = 0; n < place.size(); ++n)
            place[n] = place[n] * static_cast<double>(tensor.size(d)) + index[n];
        }
        for (std::size_t n = 0; n < by.size(); ++n) total[static_cast<std::size_t>(place[n])] += by[n];
      }
      EXPECT_TRUE(near(attn::tensor<double>(total, tensor.sizes()).to(Dtype::f32), c.at("by " + name))) << name;
    }
  }
}

/// Each random expression with random options, by every way this machine has.
TEST(ScoreMod, EveryTargetHasTheBitsOfTheSpecification) {
  const std::vector<cases::Way> ways = cases::all_ways();
  int vectors = 0;
  for (unsigned seed = 1; seed <= 60; ++seed) {
    std::mt19937 random(seed);
    const Dtype dtype = seed % 3 == 0 ? Dtype::f64 : Dtype::f32;
    const ScoreCounts n = random_score_counts(random, {1, 15, 64, 130, 1100});
    cases::Inputs in;
    in.q = cases::integers({n.batch, n.heads, n.rows, 8}, dtype, seed);
    in.k = cases::integers({n.batch, n.k_heads, n.keys, 8}, dtype, seed + 1);
    in.v = cases::integers({n.batch, n.k_heads, n.keys, 5}, dtype, seed + 2);
    in.options = random_score_options(random, seed, n, dtype);
    SCOPED_TRACE(::testing::Message() << seed << " " << name_of(dtype) << " " << n.rows << " x " << n.keys << ": "
                                      << in.options.score_mod.to_string());
    vectors += attention(in.q, in.k, in.v, in.options).plan.kernel() != "ref";
    const cases::Case c = cases::parse_case("attention " + std::string(name_of(dtype)));
    const cases::Results expected = cases::by_specification(c, in);
    for (const cases::Way& way : ways) {
      const cases::Results results = way.run(c, in);
      for (std::size_t n = 0; n < results.size(); ++n)
        ASSERT_TRUE(bits_equal(results[n].values, expected[n].values)) << way.name << " " << results[n].name;
    }
  }
  if (ways.size() > 6) {
    EXPECT_GT(vectors, 50);  // nearly all fit vectors of f32
  }
}

/// The library's own options, written as expressions: the same operations, so the same bits.
TEST(ScoreMod, TheBuiltInOnesAsExpressionsHaveTheirBits) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16}) {
    SCOPED_TRACE(name_of(dtype));
    const std::int64_t heads = 4, rows = 70, keys = 400, farthest = 128;
    const Inputs in = inputs({2, heads, rows, 16}, {2, 2, keys, 16}, 8, dtype);
    const Tensor slopes = Bias::alibi_slopes(heads), table = normal({32, heads}, 5),
                 dense = normal({2, heads, rows, keys}, 6);
    // T5's buckets as the built-in bias has them, read off it: a table of bucket numbers
    Tensor numbers = zeros({32, heads}), buckets = empty({2 * farthest + 1}, Dtype::i64);
    for (std::int64_t n = 0; n < 32; ++n) numbers.select(0, n).fill_(static_cast<double>(n));
    for (std::int64_t d = -farthest; d <= farthest; ++d) {
      const AttentionResult one = attention(zeros({1, heads, 1, 1}), zeros({1, heads, 1, 1}), zeros({1, heads, 1, 1}),
                                            {.bias = Bias::relative(numbers), .query_start = integers({-d})});
      buckets.data<std::int64_t>()[d + farthest] =
          static_cast<std::int64_t>(std::lround(one.logsumexp.flatten().select(0, 0).item()));
    }
    const ScoreTable slope(slopes, "slope"), t5(table, "t5"), bucket(buckets, "bucket"), values(dense, "dense");
    const auto i = ScoreExpression::row(Align::bottom_right), j = ScoreExpression::key(), s = ScoreExpression::score(),
               h = ScoreExpression::head();
    const Align align = Align::bottom_right;
    const std::tuple<const char*, AttentionOptions, AttentionOptions> pairs[] = {
        {"alibi", {.bias = Bias::alibi(slopes, align)}, {.score_mod = s + slope(h) * (j - i)}},
        {"symmetric alibi",
         {.bias = Bias::alibi(slopes, Align::top_left, true)},
         {.score_mod = s - slope(h) * abs(j - ScoreExpression::row(Align::top_left))}},
        {"softcap", {.softcap = 2.5}, {.score_mod = 2.5 * tanh(s / 2.5)}},
        {"temperature", {.temperature = 0.7}, {.score_mod = s / 0.7}},
        {"relative",
         {.bias = Bias::relative(table, true, farthest, align)},
         {.score_mod = s + t5(bucket(max(min(j - i, farthest), -farthest) + farthest), h)}},
        {"dense",
         {.bias = Bias::dense(dense)},
         {.score_mod = s + values(ScoreExpression::batch(), h, i - (keys - rows), j)}},
        {"causal", {.mask = Mask::causal(align)}, {.score_mod = where(j <= i, s, -infinity)}},
        {"window",
         {.mask = Mask::window(30, 2, align)},
         {.score_mod = where((i - j <= 30) & ~(j - i > 2), s, -infinity)}},
        {"all",
         {.mask = Mask::causal(align),
          .bias = Bias::alibi(slopes, align),
          .softcap = 2.5,
          .temperature = 0.7,
          .sinks = normal({heads}, 8)},
         {.mask = Mask::causal(align),
          .score_mod = (2.5 * tanh(s / 2.5) + slope(h) * (j - i)) / 0.7,
          .sinks = normal({heads}, 8)}},
    };
    for (const auto& [name, built_in, expression] : pairs)
      EXPECT_TRUE(bits_equal(run(in, expression), run(in, built_in))) << name;
  }
}

TEST(ScoreMod, StandsAfterSoftcapAndBiasAndBeforeTemperature) {
  const Inputs in = inputs({1, 2, 20, 8}, {1, 2, 30, 8}, 8);
  const Tensor bias = normal({2, 20, 30}, 4);
  const ScoreTable values(bias, "bias");
  const auto i = ScoreExpression::row(Align::top_left), j = ScoreExpression::key(), s = ScoreExpression::score(),
             h = ScoreExpression::head();
  const Tensor expected = run(in, {.score_mod = exp(2.0 * tanh(s / 2.0) + values(h, i, j)) / 0.7});
  EXPECT_TRUE(bits_equal(run(in, {.bias = Bias::dense(bias), .score_mod = exp(s), .softcap = 2, .temperature = 0.7}),
                         expected));
}

TEST(ScoreMod, NothingTakesTheFastPathAway) {
  if (attention(ones({2, 2}), ones({2, 2}), ones({2, 2})).plan.kernel() == "ref") GTEST_SKIP() << "no vectors here";
  const auto tanh_of = [](auto s, auto, auto, auto, auto) { return 30.0 * tanh(s / 30.0); };
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16}) {
    const Inputs in = inputs({2, 4, 20, 8}, {2, 2, 30, 8}, 8, dtype);
    const std::string plain = attention(in.q, in.k, in.v).plan.kernel();
    EXPECT_EQ(attention(in.q, in.k, in.v,
                        {.mask = Mask::causal(Align::bottom_right),
                         .score_mod = tanh_of,
                         .softcap = 3,
                         .key_lengths = integers({20, 30})})
                  .plan.kernel(),
              plain);
    EXPECT_EQ(attention(in.q, in.k, in.v,
                        {.score_callback = [](const ScoreTile& tile) { tile.tanh(); }, .query_start = integers({0, 0})})
                  .plan.kernel(),
              plain);
  }
}

/// A learned table by distance, a wave of both positions: what depends on where a pair stands, and on nothing else.
ScoreExpression placed(std::int64_t heads, Align align) {
  const ScoreTable table(normal({heads, 64}, 12), "table");
  const auto i = ScoreExpression::row(align), j = ScoreExpression::key();
  return ScoreExpression::score() * (1 + 0.1 * tanh(0.01 * i)) + table(ScoreExpression::head(), min(abs(i - j), 63)) -
         0.001 * (i % 7) * (j % 5);
}

TEST(ScoreMod, BatchPaddingAndThreadsChangeNothing) {
  const std::int64_t heads = 4, rows = 70, keys = 1200;
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16}) {
    SCOPED_TRACE(name_of(dtype));
    const Inputs in = inputs({2, heads, rows, 16}, {2, 2, keys, 16}, 8, dtype);
    const AttentionOptions options{.mask = Mask::causal(Align::bottom_right),
                                   .score_mod = placed(heads, Align::bottom_right)};
    const Tensor expected = run(in, options);
    const int before = num_threads();
    for (const int threads : {1, 2, 3, 8}) {
      set_num_threads(threads);
      EXPECT_TRUE(bits_equal(run(in, options), expected)) << threads;
    }
    set_num_threads(before);
    for (std::int64_t b = 0; b < 2; ++b)
      EXPECT_TRUE(bits_equal(run({in.q.narrow(0, b, 1), in.k.narrow(0, b, 1), in.v.narrow(0, b, 1)}, options),
                             expected.narrow(0, b, 1)));
    for (const std::int64_t pad : {1, 64, 100}) {
      const Tensor waste_k = full({2, 2, pad, 16}, nan, dtype), waste_v = full({2, 2, pad, 8}, nan, dtype);
      AttentionOptions right = options, left = options;
      right.key_lengths = integers({keys, keys});
      left.key_start = integers({pad, pad});
      EXPECT_TRUE(bits_equal(run({in.q, cat({in.k, waste_k}, 2), cat({in.v, waste_v}, 2)}, right), expected)) << pad;
      EXPECT_TRUE(bits_equal(run({in.q, cat({waste_k, in.k}, 2), cat({waste_v, in.v}, 2)}, left), expected)) << pad;
    }
  }
}

TEST(ScoreMod, DecodingHasTheBitsOfPrefill) {
  const std::int64_t tokens = 1300, heads = 4;
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16}) {
    const Inputs in = inputs({1, heads, tokens, 8}, {1, 2, tokens, 8}, 8, dtype);
    const AttentionOptions options{.mask = Mask::causal(), .score_mod = placed(heads, Align::unset)};
    const Tensor prefill = run(in, options);
    for (const std::int64_t i : {0, 63, 64, 1023, 1024, 1299}) {
      AttentionOptions decode = options;
      decode.query_start = integers({i});
      EXPECT_TRUE(bits_equal(run({in.q.narrow(2, i, 1), in.k.narrow(2, 0, i + 1), in.v.narrow(2, 0, i + 1)}, decode),
                             prefill.narrow(2, i, 1)))
          << i;
    }
  }
}

/// Positions begin anew with each sequence; b is its number.
TEST(ScoreMod, PackedSequencesAreEachAlone) {
  const std::int64_t heads = 4, lengths[] = {70, 1, 130, 1100};
  std::vector<std::int64_t> ends{0};
  for (const std::int64_t length : lengths) ends.push_back(ends.back() + length);
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16}) {
    const Inputs in = inputs({1, heads, ends.back(), 8}, {1, 2, ends.back(), 8}, 8, dtype);
    const Tensor by_item = normal({4}, 20);
    const auto with = [&](const ScoreExpression& item, const Tensor& values) {
      return placed(heads, Align::unset) * (1 + 0.1 * ScoreTable(values)(item));
    };
    const Tensor packed = run(
        in,
        {.mask = Mask::causal(), .score_mod = with(ScoreExpression::batch(), by_item), .cu_seqlens_q = integers(ends)});
    for (std::int64_t n = 0; n < 4; ++n) {
      const std::int64_t start = ends[static_cast<std::size_t>(n)], length = lengths[n];
      const Inputs alone{in.q.narrow(2, start, length), in.k.narrow(2, start, length), in.v.narrow(2, start, length)};
      const Tensor expected =
          run(alone, {.mask = Mask::causal(), .score_mod = with(ScoreExpression::batch(), by_item.narrow(0, n, 1))});
      EXPECT_TRUE(bits_equal(packed.narrow(2, start, length), expected)) << name_of(dtype) << " " << n;
    }
  }
  const ScoreTable short_table(ones({64}), "t");
  const Tensor q = ones({1, 1, 100, 4});
  EXPECT_NO_THROW(attention(q, q, q,
                            {.score_mod = [&](auto s, auto, auto, auto, auto j) { return s + short_table(j); },
                             .cu_seqlens_q = integers({0, 64, 100})}));
  EXPECT_THROW(attention(q, q, q,
                         {.score_mod = [&](auto s, auto, auto, auto, auto j) { return s + short_table(j); },
                          .cu_seqlens_q = integers({0, 65, 100})}),
               ValueError);
}

/// What depends on the distance alone is computed once a distance: every cut of rows and keys, both signs, both
/// alignments, heads together.
TEST(ScoreMod, DistancesAreTakenForTheirPairs) {
  const Tensor tables[] = {normal({3, 401}, 14), normal({3, 401}, 15, Dtype::f64)};
  for (const auto& [rows, keys] : {std::pair{1, 1}, {1, 130}, {3, 64}, {31, 65}, {64, 64}, {65, 200}, {130, 190}})
    for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16})
      for (const Align align : {Align::top_left, Align::bottom_right})
        for (const std::int64_t k_heads : {1, 3}) {
          const std::int64_t shift = align == Align::bottom_right ? keys - rows : 0;
          const Inputs in = inputs({1, 3, rows, 8}, {1, k_heads, keys, 8}, 8, dtype);
          const Tensor& numbers = tables[dtype == Dtype::f64];
          // the same as a dense bias, pair by pair
          Tensor dense = empty({3, rows, keys}, numbers.dtype());
          for (std::int64_t h = 0; h < 3; ++h)
            for (std::int64_t i = 0; i < rows; ++i)
              for (std::int64_t j = 0; j < keys; ++j)
                dense.select(0, h).select(0, i).select(0, j).copy_(numbers.select(0, h).select(0, j - i - shift + 200));
          const auto i = ScoreExpression::row(align), j = ScoreExpression::key(), s = ScoreExpression::score(),
                     h = ScoreExpression::head();
          const ScoreTable table(numbers, "table");
          const Tensor expected = run(in, {.bias = Bias::dense(dense)});
          EXPECT_TRUE(bits_equal(run(in, {.score_mod = s + table(h, j - i + 200)}), expected))
              << rows << " x " << keys << " " << name_of(dtype);
          EXPECT_TRUE(bits_equal(run(in, {.score_mod = s + table(h, 200 - (i - j))}), expected))
              << rows << " x " << keys << " " << name_of(dtype);
        }
}

TEST(ScoreMod, WhatIsHiddenChangesNothingEvenIfItIsNaN) {
  const std::int64_t rows = 70, keys = 200;
  const auto i = ScoreExpression::row(Align::bottom_right), j = ScoreExpression::key(), s = ScoreExpression::score();
  const AttentionOptions options[] = {
      {.mask = Mask::causal(Align::bottom_right), .score_mod = exp(s) + s * (i - j)},
      {.score_mod = where(j <= i, tanh(s), -infinity)},  // hidden by the expression itself
      {.score_mod = where(j <= i, s * 0.5, -infinity), .key_lengths = integers({150})},
  };
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16})
    for (const AttentionOptions& option : options) {
      const Inputs in = inputs({1, 2, rows, 16}, {1, 2, keys, 16}, 8, dtype);
      const Tensor clean = run(in, option);
      const std::int64_t end = option.key_lengths.defined() ? 150 : keys;
      const Tensor sees =
          Mask::causal(Align::bottom_right).dense(1, 2, rows, keys, {.key_lengths = option.key_lengths});
      for (const std::int64_t bad : {140, 149, 150, 199}) {
        Inputs dirty{in.q, in.k.clone(), in.v.clone()};
        dirty.k.select(2, bad).fill_(nan);
        dirty.v.select(2, bad).fill_(infinity);
        const Tensor seen = sees.select(3, bad).unsqueeze(-1);
        EXPECT_TRUE(bits_equal(masked_fill(run(dirty, option), seen, 0), masked_fill(clean, seen, 0)))
            << name_of(dtype) << " key " << bad << " of " << end;
      }
    }
}

TEST(ScoreMod, ANaNThatTakesPartMakesTheRowNaN) {
  const Inputs in = inputs({1, 1, 3, 8}, {1, 1, 100, 8}, 4);
  const auto i = ScoreExpression::row(Align::top_left), j = ScoreExpression::key(), s = ScoreExpression::score();
  const Tensor out = attention(in.q, in.k, in.v, {.score_mod = where((i == 1) & (j == 77), s * nan, s)}).output;
  const Tensor plain = attention(in.q, in.k, in.v).output;
  for (const std::int64_t row : {0, 2}) EXPECT_TRUE(bits_equal(out.select(2, row), plain.select(2, row)));
  for (const double x : out.select(2, 1).to_vector()) EXPECT_TRUE(std::isnan(x));
}

/// A key that a bias hides is as one that a mask hides, forward and backward, whatever the expression makes of -inf.
TEST(ScoreMod, ABiasHidesForGood) {
  const Tensor keys = zeros({1, 1, 1, 7}), mask = ones({1, 1, 1, 7}, Dtype::boolean);
  keys.select(3, 4).fill_(-infinity);
  mask.select(3, 4).fill_(false);
  for (const char* text : {"2.5*tanh(s/2.5)", "s*s", "where(s<0,1.0,s)", "exp(s)"}) {
    SCOPED_TRACE(text);
    const auto gradients_of = [&](AttentionOptions options) {
      options.score_mod = ScoreExpression::parse(text);
      std::vector<Tensor> inputs;
      for (unsigned n = 0; n < 3; ++n) inputs.push_back(normal({1, 2, n == 0 ? 5 : 7, 8}, n + 1).requires_grad_());
      const Tensor output = attention(inputs[0], inputs[1], inputs[2], options).output;
      std::vector<Tensor> result = grad({output}, inputs, {.grad_outputs = {normal(output.sizes(), 4)}});
      result.push_back(output.detach());
      return result;
    };
    const std::vector<Tensor> by_bias = gradients_of({.bias = Bias::dense(keys)}),
                              by_mask = gradients_of({.mask = Mask::attend(mask)});
    for (std::size_t n = 0; n < by_bias.size(); ++n) EXPECT_TRUE(bits_equal(by_bias[n], by_mask[n])) << n;
    for (int n = 1; n < 3; ++n)
      EXPECT_TRUE(bits_equal(by_bias[static_cast<std::size_t>(n)].select(2, 4), zeros({1, 2, 8}))) << n;
  }
}

/// Nobody knows the derivative of a callable: an error rather than a gradient without it.
TEST(ScoreMod, AGradientThroughACallableIsAnError) {
  const Tensor q = ones({1, 2, 3, 4}), wants = ones({1, 2, 3, 4}).requires_grad_();
  const AttentionResult by_query =
      attention(wants, q, q, {.score_callback = [](const ScoreTile& tile) { tile.tanh(); }});
  EXPECT_EQ(error_of<ValueError>([&] { by_query.output.sum().backward(); }),
            "attention: a score_callback has no gradient; write it as a score_mod, which has one");
}

/// Beyond 2^24 an f32 does not hold each position: distances are exact all the same, by the specification.
TEST(ScoreMod, FarPositionsAreExact) {
  const std::int64_t far = std::int64_t{1} << 30, rows = 5, keys = 40;
  const Inputs in = inputs({1, 2, rows, 8}, {1, 2, keys, 8}, 8);
  const auto i = ScoreExpression::row(), j = ScoreExpression::key(), s = ScoreExpression::score(),
             h = ScoreExpression::head();
  const Tensor slopes = full({2}, 0.5) / static_cast<double>(far);
  const ScoreTable slope(slopes, "slope"), odd(tensor<float>({0, 1}), "odd");
  const AttentionResult r =
      attention(in.q, in.k, in.v, {.score_mod = s + slope(h) * (j - i), .query_start = integers({far + 1})});
  EXPECT_TRUE(bits_equal(
      r.output, attention(in.q, in.k, in.v, {.bias = Bias::alibi(slopes), .query_start = integers({far + 1})}).output));
  for (const PlanStep& step : r.plan.steps())
    if (step.kernel.find("f32") != std::string::npos) {
      EXPECT_EQ(step.reason, "holds whole numbers of a score_mod up to 2^24");
    }
  // parity of the position, by a lookup
  const Tensor parity = odd(i % 2).apply(zeros({1, 1, 4, 1}), {.query_start = integers({far + 1})});
  EXPECT_EQ(parity.to_vector(), (std::vector<double>{1, 0, 1, 0}));
}

}  // namespace
}  // namespace attn::testing
