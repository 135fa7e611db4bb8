// tests/attention/weights_test.cc: the weights a call may ask for, from the same pass: against those of the
// specification, and what they cost.
#include "attention/inputs.h"
#include "runtime/memory.h"
#include "support/errors.h"
#include "support/golden.h"

#include <attn/autograd.h>
#include <attn/ops.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace attn::testing {
namespace {

AttentionResult run(const Inputs& in, AttentionOptions options, const Weights& weights) {
  options.weights = weights;
  return attention(in.q, in.k, in.v, options);
}

/// What stands around the softmax in these tests, and what parts there are.
std::vector<AttentionOptions> around() {
  return {{},
          {.mask = Mask::causal(Align::bottom_right), .softcap = 2, .sinks = normal({4}, 5)},
          {.mask = Mask::window(30, 4, Align::bottom_right) | Mask::prefix(3),
           .bias = Bias::alibi(Bias::alibi_slopes(4), Align::bottom_right)},
          {.temperature = 0.7,
           .query_lengths = integers({60, 0}),
           .key_lengths = integers({1101, 90}),
           .key_start = integers({3, 64})},
          {.mask = Mask::causal(Align::bottom_right), .dropout_p = 0.3, .dropout_seed = 5}};
}

/// Every kind from the full weights, which the other tests hold against the specification.
TEST(Weights, EveryKindIsWhatItSaysOfTheFullWeights) {
  const std::int64_t batch = 2, heads = 4, rows = 70, keys = 1101, n = 5;
  const std::vector<std::int64_t> chosen{69, 0, 33, 33};
  for (const Dtype dtype : {Dtype::f32, Dtype::f64}) {
    const Inputs in = inputs({batch, heads, rows, 16}, {batch, 2, keys, 16}, dtype);
    for (const AttentionOptions& options : around()) {
      const AttentionResult plain = run(in, options, Weights::none), whole = run(in, options, Weights::full);
      EXPECT_FALSE(plain.weights.defined());
      EXPECT_TRUE(bits_equal(whole.output, plain.output));
      EXPECT_EQ(whole.plan.kernel(), plain.plan.kernel());
      const Tensor& full = whole.weights;

      const AttentionResult average = run(in, options, Weights::head_average);
      Tensor sum = zeros({batch, rows, keys}, dtype);
      for (std::int64_t h = 0; h < heads; ++h) sum = add(sum, full.select(1, h));
      EXPECT_TRUE(bits_equal(average.weights, div(sum, static_cast<double>(heads))));
      EXPECT_TRUE(bits_equal(average.output, plain.output));

      const AttentionResult some = run(in, options, Weights::rows(integers(chosen)));
      ASSERT_EQ(some.weights.sizes(), (Dims{batch, heads, 4, keys}));
      for (std::size_t r = 0; r < chosen.size(); ++r)
        EXPECT_TRUE(bits_equal(some.weights.select(2, static_cast<std::int64_t>(r)), full.select(2, chosen[r])));
      EXPECT_TRUE(bits_equal(some.output, plain.output));

      const AttentionResult columns = run(in, options, Weights::column_sums);
      Tensor total = zeros({batch, heads, keys}, dtype);
      for (std::int64_t first = 0; first < rows; first += 64) {  // chains in blocks of 64 rows
        Tensor block = zeros({batch, heads, keys}, dtype);
        for (std::int64_t i = first; i < std::min(first + 64, rows); ++i) block = add(block, full.select(2, i));
        total = add(total, block);
      }
      EXPECT_TRUE(bits_equal(columns.weights, total));
      EXPECT_TRUE(bits_equal(columns.output, plain.output));

      const AttentionResult top = run(in, options, Weights::top_k(n));
      ASSERT_EQ(top.weights.sizes(), (Dims{batch, heads, rows, n}));
      const std::vector<double> values = full.to_vector(), best = top.weights.to_vector();
      const std::vector<std::int64_t> of_keys = top.weight_keys.to_int_vector();
      std::vector<std::int64_t> order(static_cast<std::size_t>(keys));
      for (std::int64_t row = 0; row < batch * heads * rows; ++row) {
        std::iota(order.begin(), order.end(), 0);
        const double* w = values.data() + row * keys;
        std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return w[a] > w[b]; });
        for (std::int64_t m = 0; m < n; ++m) {
          const std::int64_t key = order[static_cast<std::size_t>(m)];
          ASSERT_EQ(best[static_cast<std::size_t>(row * n + m)], w[key]);
          ASSERT_EQ(of_keys[static_cast<std::size_t>(row * n + m)], w[key] > 0 ? key : -1);
        }
      }
      EXPECT_TRUE(bits_equal(top.output, plain.output));
    }
  }
}

TEST(Weights, OfSixteenBitsDoNotChangeTheOutput) {
  for (const Dtype dtype : {Dtype::bf16, Dtype::f16}) {
    const Inputs in = inputs({1, 2, 90, 32}, {1, 2, 700, 32}, dtype);
    const AttentionOptions options{.mask = Mask::causal(Align::bottom_right)};
    const AttentionResult plain = run(in, options, Weights::none);
    for (const Weights& weights : {Weights(Weights::full), Weights(Weights::head_average),
                                   Weights(Weights::column_sums), Weights::top_k(3), Weights::rows(integers({4}))}) {
      const AttentionResult with = run(in, options, weights);
      EXPECT_TRUE(bits_equal(with.output, plain.output));
      EXPECT_EQ(with.plan.kernel(), plain.plan.kernel());
    }
    const Around causal{
        .scale = 1 / std::sqrt(32.0),
        .sees = [](std::int64_t, std::int64_t, std::int64_t i, std::int64_t j) { return j <= i + 610; }};
    const Plainly naive = attend_plainly<float>(in.q.to(Dtype::f32), in.k.to(Dtype::f32), in.v.to(Dtype::f32), causal);
    const Plainly truth =
        attend_plainly<long double>(in.q.to(Dtype::f64), in.k.to(Dtype::f64), in.v.to(Dtype::f64), causal);
    expect_within(run(in, options, Weights::full).weights, naive.weights, truth.weights,
                  dtype == Dtype::bf16 ? 0x1p-7 : 0x1p-10);
  }
}

/// NaN in a masked key, and in one that some rows see.
TEST(Weights, OfRowsThatAreDecidedOneByOne) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    const Inputs clean = inputs({1, 2, 40, 16}, {1, 2, 100, 16}, dtype);
    Inputs bad{clean.q, clean.k.clone(), clean.v.clone()};
    bad.k.select(2, 80).fill_(std::numeric_limits<double>::quiet_NaN());
    bad.v.select(2, 80).fill_(std::numeric_limits<double>::infinity());
    const AttentionOptions options{.mask = Mask::causal(Align::bottom_right)};  // rows 20 on see key 80
    for (const Weights::Kind kind : {Weights::full, Weights::head_average}) {
      const Tensor good = run(clean, options, kind).weights, dirty = run(bad, options, kind).weights;
      EXPECT_TRUE(bits_equal(dirty.narrow(-2, 0, 20), good.narrow(-2, 0, 20)));
      const Tensor last = dirty.narrow(-2, 20, 1).narrow(-1, 0, 81);
      for (const double w : last.to_vector()) EXPECT_TRUE(std::isnan(w));
      for (const double w : dirty.narrow(-2, 20, 1).narrow(-1, 81, 19).to_vector()) EXPECT_EQ(w, 0);
    }
  }
}

TEST(Weights, OfPackedSequences) {
  const Inputs in = inputs({1, 2, 100, 8}, {1, 2, 100, 8});
  const AttentionOptions options{.mask = Mask::causal(), .cu_seqlens_q = integers({0, 70, 70, 100})};
  const Tensor full = run(in, options, Weights::full).weights;
  for (std::int64_t i = 0; i < 100; ++i)
    for (std::int64_t j = 0; j < 100; ++j)
      ASSERT_EQ(full.select(1, 0).select(1, i).select(1, j).item() > 0, j <= i && (i < 70) == (j < 70));
  const Tensor sums = run(in, options, Weights::column_sums).weights;
  const Inputs last{in.q.narrow(2, 70, 30), in.k.narrow(2, 70, 30), in.v.narrow(2, 70, 30)};
  EXPECT_TRUE(bits_equal(sums.narrow(2, 70, 30), run(last, {.mask = Mask::causal()}, Weights::column_sums).weights));
  const AttentionResult top = run(in, options, Weights::top_k(2));
  EXPECT_EQ(top.weight_keys.select(1, 0).select(1, 70).to_int_vector(), (std::vector<std::int64_t>{70, -1}));
}

TEST(Weights, MemoryIsThatOfWhatIsAskedFor) {
  constexpr std::int64_t tokens = 8192;
  const Tensor x = normal({1, 1, tokens, 8}, 1);
  const auto peak_of = [&](const Weights& weights) {
    const auto call = [&] { attention(x, x, x, {.weights = weights}); };
    call();  // scratch that threads keep is there
    const std::size_t before = runtime::allocated_bytes();
    runtime::reset_peak();
    call();
    return runtime::peak_bytes() - before;
  };
  constexpr std::size_t row = tokens * sizeof(float), small = std::size_t{4} << 20;
  EXPECT_LT(peak_of(Weights::none), small);
  EXPECT_LT(peak_of(Weights::rows(integers({7, 8000}))), small + 2 * row);
  EXPECT_LT(peak_of(Weights::column_sums), small + row);
  EXPECT_LT(peak_of(Weights::top_k(4)), small + 4 * tokens * 12);
  EXPECT_LT(peak_of(Weights::head_average), small + tokens * row);
}

TEST(Weights, RowsAreCountedFromTheEndToo) {
  Inputs in = inputs({1, 2, 10, 8}, {1, 2, 20, 8});
  in.q.requires_grad_();
  in.k.requires_grad_();
  const auto gradient_of = [&](const Tensor& rows) {
    const Tensor weights = run(in, {}, Weights::rows(rows)).weights;
    return grad({sum(weights * weights)}, {in.q, in.k})[1];
  };
  EXPECT_TRUE(bits_equal(run(in, {}, Weights::rows(integers({-1, 0, -10}))).weights,
                         run(in, {}, Weights::rows(integers({9, 0, 0}))).weights));
  EXPECT_TRUE(bits_equal(gradient_of(integers({-1, 3})), gradient_of(integers({9, 3}))));
  EXPECT_EQ(error_of<ValueError>([&] { run(in, {}, Weights::rows(integers({-11}))); }),
            "attention: row 0 of weights is -11; it must be below the number of rows, 10, and at least -10");
}

TEST(Weights, ErrorsSayWhatIsWrong) {
  const Inputs in = inputs({1, 2, 10, 8}, {1, 2, 20, 8});
  EXPECT_EQ(error_of<ValueError>([&] { run(in, {}, Weights::rows(integers({3, 10}))); }),
            "attention: row 1 of weights is 10; it must be below the number of rows, 10, and at least -10");
  EXPECT_EQ(error_of<DtypeError>([&] { run(in, {}, Weights::rows(ones({2}))); }),
            "attention: the rows of weights are f32; they must be i64 or i32");
  EXPECT_EQ(error_of<ShapeError>([&] { run(in, {}, Weights::rows(integers({3, 1}).unsqueeze(0))); }),
            "attention: the rows of weights have shape [1, 2]; they must be [n]");
  EXPECT_EQ(error_of<ValueError>([&] { run(in, {}, Weights::top_k(21)); }),
            "attention: top_k of weights is 21; it must be from 1 to the number of keys, 20");
}

TEST(Weights, NotationsWithoutANumberAfterAComma) {
  for (const char* text : {"rows(1,)", "rows(1, )", "rows(,)", "rows(,1)", "rows(1,,2)", "rows( )", "top_k(3,)",
                           "top_k(,3)", "top_k(,)"}) {
    const std::string error = error_of<ValueError>([&] { Weights::parse(text); });
    EXPECT_EQ(error, "Weights::parse: " + std::string(text) + ": a number must be a whole number, not \"\"");
  }
  EXPECT_EQ(Weights::parse("rows()").to_string(), "rows()");  // as it is written
  EXPECT_EQ(Weights::parse("rows(1,2 , 3)").to_string(), "rows(1, 2, 3)");
  for (const char* text : {"window(3, 0,)", "window(3,)", "window(,3)", "prefix(3,)", "prefix()", "causal()",
                           "causal(top_left,)", "causal &", "| causal"})
    EXPECT_NE(error_of<ValueError>([&] { Mask::parse(text); }), "") << text;
  const std::vector<std::pair<std::string, Tensor>> tables{{"t", ones({3})}};
  for (const char* text : {"min(s,)", "min(s, 1,)", "min(,s)", "exp(s,)", "exp()", "t[]", "t[h,]", "t[,h]", "s +"})
    EXPECT_NE(error_of<ValueError>([&] { ScoreExpression::parse(text, tables); }), "") << text;
}

}  // namespace
}  // namespace attn::testing
