// tests/attention/forward_test.cc: attention() against its formula in long double, for every option.
#include <attn/cache.h>

#include "attention/inputs.h"

#include "support/golden.h"

#include <gtest/gtest.h>

namespace attn::testing {
namespace {

struct Sizes {
  std::int64_t batch = 2, heads = 4, k_heads = 4, v_heads = 4, rows = 7, keys = 9, dim = 8, width = 8;
};

Inputs inputs(const Sizes& s, Dtype dtype = Dtype::f32) {
  return {normal({s.batch, s.heads, s.rows, s.dim}, 1, dtype), normal({s.batch, s.k_heads, s.keys, s.dim}, 2, dtype),
          normal({s.batch, s.v_heads, s.keys, s.width}, 3, dtype)};
}

/// Output, weights and logsumexp are right; weights of a row add up to 1, or with a sink to less; they give the output.
void expect_right(const Inputs& in, AttentionOptions options, Around around) {
  options.weights = Weights::full;
  const AttentionResult r = attention(in.q, in.k, in.v, options);
  const bool f64 = in.q.dtype() == Dtype::f64;
  const double eps = f64 ? 0x1p-52 : 0x1p-23, out_eps = in.q.dtype() == Dtype::bf16  ? 0x1p-8
                                                        : in.q.dtype() == Dtype::f16 ? 0x1p-11
                                                                                     : eps;
  const Plainly truth = attend_plainly<long double>(in.q, in.k, in.v, around);
  const Plainly naive =
      f64 ? attend_plainly<double>(in.q, in.k, in.v, around) : attend_plainly<float>(in.q, in.k, in.v, around);
  expect_within(r.output, naive.output, truth.output, out_eps);
  expect_within(r.weights, naive.weights, truth.weights, out_eps);
  // bf16 sums rounded weights, each off by 2^-9 of itself (and 1/20 of that): so is the sum, and its log by as much
  expect_within(r.logsumexp, naive.logsumexp, truth.logsumexp, eps, in.q.dtype() == Dtype::bf16 ? 1.05 * 0x1p-9 : 0);
  if (around.sinks.empty() && out_eps == eps) {
    const std::vector<double> sums = r.weights.sum({-1}).to_vector(), lse = r.logsumexp.to_vector();
    for (std::size_t n = 0; n < sums.size(); ++n) EXPECT_NEAR(sums[n], std::isinf(lse[n]) ? 0 : 1, 1e-5);
  }
  options.weights = Weights::none;
  EXPECT_TRUE(bits_equal(attention(in.q, in.k, in.v, options).output, r.output))
      << "asking for weights changes nothing";
}

double default_scale(const Sizes& s) { return 1 / std::sqrt(static_cast<double>(s.dim)); }

TEST(Forward, ManyShapesAndTypes) {
  const Sizes shapes[] = {
      {},
      {.heads = 6, .k_heads = 2, .v_heads = 3, .rows = 5, .keys = 70, .dim = 3, .width = 5},
      {.batch = 1, .heads = 1, .k_heads = 1, .v_heads = 1, .rows = 1, .keys = 1, .dim = 1, .width = 1},
      {.batch = 1, .heads = 2, .k_heads = 1, .v_heads = 2, .rows = 3, .keys = 2100, .dim = 16, .width = 4},
      {.batch = 3, .heads = 2, .k_heads = 2, .v_heads = 1, .rows = 130, .keys = 65, .dim = 2, .width = 1},
      {.keys = 0},
      {.rows = 0},
      {.width = 0}};
  for (const Sizes& s : shapes)
    for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16}) {
      SCOPED_TRACE(::testing::Message() << s.rows << " x " << s.keys << " " << name_of(dtype));
      expect_right(inputs(s, dtype), {}, {.scale = default_scale(s)});
    }
}

TEST(Forward, NoDimsGiveTheMeanOfTheValues) {
  const Inputs in = inputs({.keys = 4, .dim = 0});
  EXPECT_TRUE(within(attention(in.q, in.k, in.v).output, in.v.mean({2}, true).expand({2, 4, 7, 8}), 1e-6));
}

TEST(Forward, ScaleSoftcapTemperature) {
  const Inputs in = inputs({});
  expect_right(in, {.scale = 0.3}, {.scale = 0.3});
  expect_right(in, {.scale = -2}, {.scale = -2});
  expect_right(in, {.score = Score::dot()}, {.scale = 1});
  expect_right(in, {.scale = 1.0, .softcap = 2}, {.scale = 1, .softcap = 2});
  expect_right(in, {.scale = 1.0, .temperature = 0.25}, {.scale = 1, .temperature = 0.25});
  expect_right(in, {.scale = 2.0, .softcap = 5, .temperature = 3}, {.scale = 2, .softcap = 5, .temperature = 3});
}

TEST(Forward, Sinks) {
  const Inputs in = inputs({});
  const std::vector<double> sinks = {0.5, -3, 4, 40};
  expect_right(in, {.scale = 1.0, .sinks = tensor<double>(sinks).to(Dtype::f32)}, {.scale = 1, .sinks = sinks});
  const AttentionResult r =
      attention(in.q, in.k, in.v, {.mask = Mask::none(), .sinks = ones({4}), .weights = Weights::full});
  EXPECT_TRUE(same_bits(r.output, zeros({2, 4, 7, 8})));
  EXPECT_TRUE(same_bits(r.weights, zeros({2, 4, 7, 9})));
  EXPECT_TRUE(same_bits(r.logsumexp, full({2, 4, 7}, -INFINITY)));
}

TEST(Forward, BiasTerms) {
  const Sizes s{};
  const Inputs in = inputs(s);
  const Tensor dense = normal({2, 1, 7, 9}, 5), slopes = Bias::alibi_slopes(4);
  const auto dense_at = [&](std::int64_t b, std::int64_t, std::int64_t i, std::int64_t j) {
    return dense[b][0][i][j].item();
  };
  expect_right(in, {.bias = Bias::dense(dense)}, {.scale = default_scale(s), .bias = dense_at});
  const auto alibi_at = [&](std::int64_t, std::int64_t h, std::int64_t i, std::int64_t j) {
    return -std::exp2(-2.0 * static_cast<double>(h + 1)) * static_cast<double>(i + 2 - j);
  };
  expect_right(in, {.bias = Bias::alibi(slopes, Align::bottom_right)}, {.scale = default_scale(s), .bias = alibi_at});
  expect_right(in, {.bias = Bias::alibi(slopes, Align::bottom_right) + Bias::dense(dense)},
               {.scale = default_scale(s), .bias = [&](auto... at) { return alibi_at(at...) + dense_at(at...); }});
  for (const Dtype dtype : {Dtype::bf16, Dtype::f16}) {
    const Tensor half = dense.to(dtype);
    expect_right(inputs(s, dtype), {.bias = Bias::dense(half)},
                 {.scale = default_scale(s), .bias = [&](std::int64_t b, std::int64_t, std::int64_t i, std::int64_t j) {
                    return half[b][0][i][j].item();
                  }});
  }
}

TEST(Forward, SlopesHalveFromHeadToHead) {
  EXPECT_EQ(Bias::alibi_slopes(8).to_vector(),
            (std::vector<double>{0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625}));
}

/// As the paper's code and BLOOM's have them where the number is no power of two.
TEST(Forward, SlopesOfOtherNumbersTakeEveryOtherOneOfTheNextPower) {
  const auto slopes = [](std::int64_t heads) { return Bias::alibi_slopes(heads).to_vector(); };
  EXPECT_EQ(slopes(1), (std::vector<double>{0.00390625}));
  EXPECT_EQ(slopes(3), (std::vector<double>{0.0625, 0.00390625, 0.25}));
  EXPECT_EQ(slopes(5), (std::vector<double>{0.25, 0.0625, 0.015625, 0.00390625, 0.5}));
  EXPECT_EQ(slopes(6), (std::vector<double>{0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125}));
  // 8 and the first 4 of every other one of 16; BLOOM's: 64 and the first 48 of every other one of 128
  for (const std::int64_t heads : {12, 112}) {
    const std::int64_t whole = heads == 12 ? 8 : 64;
    for (std::int64_t h = 0; h < heads; ++h) {
      const double power = h < whole ? 8.0 * static_cast<double>(h + 1) / static_cast<double>(whole)
                                     : 8.0 * static_cast<double>(2 * (h - whole) + 1) / static_cast<double>(2 * whole);
      EXPECT_EQ(slopes(heads)[static_cast<std::size_t>(h)], static_cast<float>(std::exp2(-power))) << heads << " " << h;
    }
  }
}

/// Keys on both sides of a row lose by their distance: forward, decode, packed sequences and a cache, against the
/// definition.
TEST(Forward, SymmetricAlibiLosesBothWays) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16}) {
    const Sizes s{};
    const Inputs in = inputs(s, dtype);
    const auto at = [](std::int64_t, std::int64_t h, std::int64_t i, std::int64_t j) {
      return -std::exp2(-2.0 * static_cast<double>(h + 1)) * std::abs(static_cast<double>(i - j));
    };
    expect_right(in, {.bias = Bias::alibi(Bias::alibi_slopes(4), Align::top_left, true)},
                 {.scale = default_scale(s), .bias = at});
  }
  const Tensor q = normal({1, 4, 90, 16}, 1), k = normal({1, 4, 90, 16}, 2), v = normal({1, 4, 90, 16}, 3),
               slopes = Bias::alibi_slopes(4);
  const Tensor whole = attention(q, k, v, {.bias = Bias::alibi(slopes, Align::unset, true)}).output;
  KvCache cache({.key_heads = 4, .head_dim = 16, .pages = 6});
  const KvSequence sequence = cache.create();
  cache.append(sequence, k[0], v[0]);
  for (const std::int64_t row : {0, 40, 89}) {
    const AttentionOptions options{.bias = Bias::alibi(slopes, Align::unset, true), .query_start = integers({row})};
    EXPECT_TRUE(bits_equal(attention(q.narrow(2, row, 1), k, v, options).output, whole.narrow(2, row, 1))) << row;
    EXPECT_TRUE(
        bits_equal(attention_cached(q.narrow(2, row, 1), cache, {sequence}, options).output, whole.narrow(2, row, 1)))
        << row;
  }
  // [180, H, D]
  const auto twice = [](const Tensor& x) { return cat({x[0].transpose(0, 1), x[0].transpose(0, 1)}, 0); };
  const Tensor packed =
      attention(twice(q), twice(k), twice(v),
                {.bias = Bias::alibi(slopes, Align::unset, true), .cu_seqlens_q = integers({0, 90, 180})})
          .output;
  EXPECT_TRUE(bits_equal(packed.narrow(0, 90, 90).transpose(0, 1).contiguous(), whole[0]));
}

/// T5's buckets as its paper's code has them.
std::int64_t t5_bucket(std::int64_t relative, bool bidirectional, std::int64_t buckets, std::int64_t max_distance) {
  std::int64_t result = 0, n = -relative;
  if (bidirectional) {
    buckets /= 2;
    if (n < 0) result += buckets;
    n = std::abs(n);
  } else {
    n = std::max<std::int64_t>(n, 0);
  }
  const std::int64_t exact = buckets / 2;
  if (n < exact) return result + n;
  const float part = std::log(static_cast<float>(n) / static_cast<float>(exact)) /
                     static_cast<float>(std::log(static_cast<double>(max_distance) / static_cast<double>(exact))) *
                     static_cast<float>(buckets - exact);
  return result + std::min(exact + static_cast<std::int64_t>(part), buckets - 1);
}

TEST(Forward, RelativeBias) {
  const Sizes s{.batch = 1, .rows = 150, .keys = 150, .dim = 2, .width = 2};
  const Inputs in = inputs(s);
  for (const bool bidirectional : {true, false})
    for (const std::int64_t max_distance : {128, 20}) {
      const Tensor table = normal({32, 4}, 6);
      const auto at = [&](std::int64_t, std::int64_t h, std::int64_t i, std::int64_t j) {
        return table[t5_bucket(j - i, bidirectional, 32, max_distance)][h].item();
      };
      expect_right(in, {.bias = Bias::relative(table, bidirectional, max_distance)},
                   {.scale = default_scale(s), .bias = at});
    }
}

TEST(Forward, LengthsAndStarts) {
  const Sizes s{.batch = 3, .rows = 6, .keys = 8};
  const Inputs in = inputs(s);
  const std::int64_t q_lengths[] = {6, 3, 0}, k_lengths[] = {8, 5, 4}, starts[] = {0, 2, 4};
  const auto exists = [&](std::int64_t b, std::int64_t, std::int64_t i, std::int64_t j) {
    return i < q_lengths[b] && j >= starts[b] && j < k_lengths[b];
  };
  AttentionOptions options{
      .query_lengths = integers({6, 3, 0}), .key_lengths = integers({8, 5, 4}), .key_start = integers({0, 2, 4})};
  expect_right(in, options, {.scale = default_scale(s), .sees = exists});
  // causal at the bottom right: row i at i + (keys - rows), key j at j - start
  options.mask = Mask::causal(Align::bottom_right);
  expect_right(in, options,
               {.scale = default_scale(s), .sees = [&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
                  return exists(b, h, i, j) && j - starts[b] <= i + (k_lengths[b] - starts[b]) - q_lengths[b];
                }});
  options.query_start = integers({1, 0, 3});
  expect_right(in, options,
               {.scale = default_scale(s), .sees = [&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
                  return exists(b, h, i, j) && j - starts[b] <= i + (b == 0 ? 1 : b == 1 ? 0 : 3);
                }});
}

TEST(Forward, GeneralScore) {
  const Sizes s{.dim = 6};
  Inputs in = inputs(s);
  in.k = normal({2, 4, 9, 5}, 8);
  for (const Tensor& w : {normal({6, 5}, 9), normal({4, 6, 5}, 9)}) {
    const Inputs projected{matmul(in.q, w), in.k, in.v};
    const AttentionResult r = attention(in.q, in.k, in.v, {.score = Score::general(w)});
    EXPECT_TRUE(bits_equal(r.output, attention(projected.q, in.k, in.v, {.score = Score::dot()}).output));
  }
}

TEST(Forward, AdditiveScoreInEveryType) {
  const Sizes s{.batch = 2, .heads = 2, .k_heads = 1, .v_heads = 2, .rows = 5, .keys = 70, .dim = 4, .width = 3};
  for (const Dtype dtype : {Dtype::f32, Dtype::f64}) {
    const Inputs in = inputs(s, dtype);
    const Tensor w_q = normal({7, 4}, 4, dtype), w_k = normal({7, 4}, 5, dtype), w = normal({1, 7}, 6, dtype);
    const AttentionResult r = additive_attention(in.q, in.k, in.v, w_q, w_k, w, {.weights = Weights::full});
    const Tensor q = linear(in.q, w_q), k = linear(in.k, w_k);
    // the score as a bias of a product that is 0
    const auto score = [&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
      double sum = 0;
      for (std::int64_t c = 0; c < 7; ++c)
        sum += w[0][c].item() * std::tanh(q[b][h][i][c].item() + k[b][0][j][c].item());
      return sum;
    };
    const Plainly truth = attend_plainly<long double>(in.q, in.k, in.v, {.scale = 0, .bias = score});
    const Plainly naive = dtype == Dtype::f64 ? attend_plainly<double>(in.q, in.k, in.v, {.scale = 0, .bias = score})
                                              : attend_plainly<float>(in.q, in.k, in.v, {.scale = 0, .bias = score});
    const double eps = dtype == Dtype::f64 ? 0x1p-52 : 0x1p-23;
    expect_within(r.output, naive.output, truth.output, 2 * eps);
    expect_within(r.weights, naive.weights, truth.weights, 8 * eps);
  }
}

TEST(Forward, LowRanksAreOneHead) {
  const Tensor q = normal({2, 5, 4}, 1), k = normal({2, 6, 4}, 2), v = normal({2, 6, 3}, 3),
               allowed = gt(normal({2, 5, 6}, 4), 0);
  const AttentionOptions options{.mask = Mask::attend(allowed), .weights = Weights::full};
  const AttentionResult three = attention(q, k, v, options);
  EXPECT_EQ(three.output.sizes(), (Dims{2, 5, 3}));
  EXPECT_EQ(three.weights.sizes(), (Dims{2, 5, 6}));
  EXPECT_EQ(three.logsumexp.sizes(), (Dims{2, 5}));
  const AttentionResult four = attention(q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1),
                                         {.mask = Mask::attend(allowed.unsqueeze(1)), .weights = Weights::full});
  EXPECT_TRUE(bits_equal(three.output, four.output.squeeze(1)));
  const AttentionResult two =
      attention(q[1], k[1], v[1], {.mask = Mask::attend(allowed[1]), .weights = Weights::head_average});
  EXPECT_TRUE(bits_equal(two.output, three.output[1]));
  EXPECT_TRUE(bits_equal(two.weights, three.weights[1]));
  EXPECT_EQ(two.logsumexp.sizes(), (Dims{5}));
}

TEST(Forward, HeadAverageIsTheAverageOfTheFullWeights) {
  const Sizes s{.heads = 3, .k_heads = 3, .v_heads = 3, .rows = 70, .keys = 9};
  const Inputs in = inputs(s);
  const AttentionResult full = attention(in.q, in.k, in.v, {.weights = Weights::full});
  const AttentionResult average = attention(in.q, in.k, in.v, {.weights = Weights::head_average});
  const Tensor w = full.weights;
  EXPECT_TRUE(bits_equal(average.weights, (w.select(1, 0) + w.select(1, 1) + w.select(1, 2)) / 3));
  EXPECT_TRUE(bits_equal(average.output, full.output));
  EXPECT_TRUE(bits_equal(average.logsumexp, full.logsumexp));
}

TEST(Forward, ScoresAndSmallForms) {
  const Tensor x = normal({6, 3}, 1), memory = normal({4, 3}, 2), w_q = normal({3, 2}, 3), w_k = normal({3, 2}, 4),
               w_v = normal({3, 4}, 5);
  const ScoresAndContext self = self_attention(x, w_q, w_k, w_v);
  const Tensor scores = matmul(matmul(x, w_q), matmul(x, w_k).t()) / std::sqrt(2.0);
  EXPECT_TRUE(within(self.scores, scores, 1e-6));
  EXPECT_TRUE(within(self.weights, softmax(scores, -1), 1e-6));
  EXPECT_TRUE(within(self.context, matmul(self.weights, matmul(x, w_v)), 1e-6));
  const ScoresAndContext cross = cross_attention(x, memory, w_q, w_k, w_v, {.score = Score::dot()});
  EXPECT_TRUE(within(cross.scores, matmul(matmul(x, w_q), matmul(memory, w_k).t()), 1e-6));
  EXPECT_EQ(cross.weights.sizes(), (Dims{6, 4}));
}

TEST(Forward, WritesIntoGivenMemory) {
  const Inputs in = inputs({});
  const Tensor expected = attention(in.q, in.k, in.v).output;
  Tensor buffer = zeros({2, 7, 4, 8});  // [B, T, H, D]: strided heads
  const AttentionResult r = attention(in.q, in.k, in.v, {.out = buffer.transpose(1, 2)});
  EXPECT_TRUE(bits_equal(buffer.transpose(1, 2).contiguous(), expected));
  EXPECT_EQ(r.output.data(), buffer.data());
  Tensor columns = zeros({2, 4, 8, 7});  // the last dim is strided
  attention(in.q, in.k, in.v, {.out = columns.transpose(2, 3)});
  EXPECT_TRUE(bits_equal(columns.transpose(2, 3).contiguous(), expected));
  const Inputs square = inputs({.keys = 7});
  const Tensor right = attention(square.q, square.k, square.v).output;
  for (Tensor Inputs::* overwritten : {&Inputs::q, &Inputs::k, &Inputs::v}) {
    const Inputs copy{square.q.clone(), square.k.clone(), square.v.clone()};
    attention(copy.q, copy.k, copy.v, {.out = copy.*overwritten});
    EXPECT_TRUE(bits_equal(copy.*overwritten, right));
  }
}

TEST(Forward, PlanSaysWhichKernelRan) {
  const Inputs in = inputs({});
  const Plan plan = attention(in.q, in.k, in.v).plan;
  ASSERT_FALSE(plan.steps().empty());
  EXPECT_EQ(plan.steps().back().kernel, plan.kernel());
  EXPECT_TRUE(plan.steps().back().taken);
  EXPECT_FALSE(plan.steps().back().reason.empty());
}

TEST(Forward, ResultsWantGradientsWhereInputsDo) {
  const Inputs in = inputs({});
  EXPECT_FALSE(attention(in.q, in.k, in.v).output.requires_grad());
  const Tensor bias = zeros({7, 9}).requires_grad_();
  const AttentionResult r = attention(in.q, in.k, in.v, {.bias = Bias::dense(bias), .weights = Weights::full});
  EXPECT_TRUE(r.output.requires_grad() && r.weights.requires_grad() && r.logsumexp.requires_grad());
}

}  // namespace
}  // namespace attn::testing
