// tests/attention/gradient_test.cc: the backward pass against central differences in f64, alone and on the tape.
#include <attn/autograd.h>

#include "attention/gradient_trial.h"
#include "attention/truth.h"
#include "support/errors.h"
#include "support/golden.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace attn::testing {
namespace {

double loss(const Trial& s) {
  Call call = s.call();
  Tensor lse;
  const std::vector<double> o = forward(s, call, &lse).output.to_vector(), dy = s.doutput.to_vector(),
                            l = lse.to_vector();
  double sum = 0;
  for (std::size_t n = 0; n < o.size(); ++n) sum += o[n] * dy[n];
  if (!s.dlogsumexp.defined()) return sum;
  const std::vector<double> dl = s.dlogsumexp.to_vector();
  for (std::size_t n = 0; n < l.size(); ++n)
    if (std::isfinite(l[n])) sum += l[n] * dl[n];
  return sum;
}

/// Differences of fourth order with steps h and 2h, which differ by more than the error of the finer: every element of
/// `x`.
void expect_derivative(const Trial& s, const Tensor& x, const Tensor& gradient, const char* name) {
  SCOPED_TRACE(name);
  ASSERT_TRUE(gradient.sizes() == x.sizes()) << to_string(gradient.sizes());
  const std::vector<double> ours = gradient.to_vector();
  double largest = 1e-3;
  for (const double g : ours) largest = std::max(largest, std::abs(g));
  const Tensor flat = x.detach().reshape({-1});  // shares x's memory
  ASSERT_EQ(flat.data(), x.data());
  double* const values = flat.data<double>();
  const std::size_t step = ours.size() > 200 ? 7 : 1;
  for (std::size_t n = 0; n < ours.size(); n += step) {
    const double before = values[n];
    if (!std::isfinite(before)) {
      EXPECT_EQ(ours[n], 0);
      continue;
    }
    double f[9];
    constexpr double h = 0x1p-9;
    for (const int at : {-4, -2, -1, 1, 2, 4}) {
      values[n] = before + at * h;
      f[at + 4] = loss(s);
    }
    values[n] = before;
    const double fine = (8 * (f[5] - f[3]) - (f[6] - f[2])) / (12 * h),
                 coarse = (8 * (f[6] - f[2]) - (f[8] - f[0])) / (24 * h);
    const double allowed = std::abs(fine - coarse) + 64 * 0x1p-52 * std::max(1.0, std::abs(f[5])) / h;
    ASSERT_LT(allowed, 1e-6 * std::max(largest, 1.0)) << "a difference this coarse shows nothing";
    EXPECT_NEAR(ours[n], fine, allowed) << "element " << n;
  }
}

void expect_derivatives(Trial s) {
  const Call call = s.call();
  const kernels::AttentionProblem& p = call.problem;
  s.doutput = normal({p.batch, p.q_heads, p.q_rows, p.value_dim}, 21, Dtype::f64);
  s.dlogsumexp = normal({p.batch, p.q_heads, p.q_rows}, 22, Dtype::f64);
  const AttentionGradients g = gradients(s);
  expect_derivative(s, s.q, g.q.reshape(s.q.sizes()), "q");
  expect_derivative(s, s.k, g.k.reshape(s.k.sizes()), "k");
  expect_derivative(s, s.v, g.v.reshape(s.v.sizes()), "v");
  if (s.options.sinks.defined()) expect_derivative(s, s.options.sinks, g.sinks, "sinks");
  for (std::size_t n = 0; n < g.bias.size(); ++n)
    expect_derivative(s, s.options.bias.terms()[n].values, g.bias[n], "bias");
}

Tensor wide(const Dims& sizes, std::uint64_t seed) { return normal(sizes, seed, Dtype::f64); }
Trial trial(std::int64_t b, std::int64_t heads, std::int64_t rows, std::int64_t keys, std::int64_t dim,
            std::int64_t value_dim) {
  return {.q = wide({b, heads, rows, dim}, 1),
          .k = wide({b, heads, keys, dim}, 2),
          .v = wide({b, heads, keys, value_dim}, 3)};
}

TEST(Gradient, IsTheDerivativeOfPlainAttention) {
  expect_derivatives(trial(2, 2, 5, 7, 4, 3));
  Trial s = trial(1, 1, 70, 67, 2, 1);  // two blocks of rows and of keys
  s.options.mask = Mask::causal(Align::bottom_right);
  expect_derivatives(s);
}

TEST(Gradient, OfGroupedHeadsSumsOverTheGroup) {
  Trial s{.q = wide({2, 4, 5, 3}, 1), .k = wide({2, 2, 6, 3}, 2), .v = wide({2, 1, 6, 2}, 3)};
  s.options.mask = Mask::causal(Align::top_left);
  expect_derivatives(s);
  expect_derivatives({.q = wide({1, 6, 4, 3}, 1), .k = wide({1, 3, 6, 3}, 2), .v = wide({1, 2, 6, 2}, 3)});
}

TEST(Gradient, GoesThroughEverythingAroundTheScore) {
  Trial s = trial(2, 2, 6, 9, 3, 4);
  s.options.scale = -0.7;
  s.options.softcap = 1.5;
  s.options.temperature = 0.6;
  s.options.sinks = wide({2}, 4);
  s.options.mask = Mask::window(4, 2, Align::bottom_right);
  s.options.bias = Bias::dense(wide({2, 6, 9}, 5)) + Bias::alibi(wide({2}, 6), Align::bottom_right) +
                   Bias::relative(wide({8, 2}, 7), true, 16, Align::top_left) +
                   Bias::alibi(wide({2}, 8), Align::bottom_right, true);
  expect_derivatives(s);
}

TEST(Gradient, OfABiasIsReducedToItsShape) {
  for (const Dims& sizes :
       {Dims{2, 3, 5, 7}, Dims{5, 7}, Dims{3, 5, 7}, Dims{2, 1, 5, 7}, Dims{1, 7}, Dims{7}, Dims{2, 1, 1, 7},
        Dims{5, 1}, Dims{3, 5, 1}, Dims{3, 1, 1}, Dims{1}, Dims{2, 3, 1, 1}, Dims{2, 1, 5, 1}}) {
    SCOPED_TRACE(to_string(sizes));
    Trial s = trial(2, 3, 5, 7, 3, 2);
    s.options.bias = Bias::dense(wide(sizes, 9));
    s.options.mask = Mask::causal(Align::bottom_right);
    expect_derivatives(s);
  }
  Trial s = trial(1, 2, 3, 8, 2, 2);  // -inf hides: the element has no gradient
  const Tensor padding = wide({1, 1, 1, 8}, 9);
  padding.slice(3, 5).fill_(-std::numeric_limits<double>::infinity());
  s.options.bias = Bias::dense(padding) + Bias::relative(wide({4, 2}, 7), false, 9, Align::top_left);
  expect_derivatives(s);
}

TEST(Gradient, KeepsToLengthsPartsAndDocuments) {
  Trial s = trial(3, 2, 6, 8, 3, 2);
  s.options.query_lengths = integers({6, 4, 0});
  s.options.key_lengths = integers({8, 5, 7});
  s.options.key_start = integers({0, 2, 1});
  s.options.mask = Mask::causal(Align::bottom_right);
  s.options.sinks = wide({2}, 4);
  expect_derivatives(s);

  Trial documents = trial(1, 2, 9, 9, 3, 2);
  documents.options.bias = Bias::dense(wide({9, 9}, 5));
  for (const std::vector<std::int64_t>& ids : {std::vector<std::int64_t>{0, 0, 1, 1, 1, 2, 2, 2, 2},
                                               {0, 0, 1, 1, 0, 0, 2, 2, 1},
                                               {5, 5, 5, 5, 5, 5, 5, 5, 5}}) {
    documents.options.mask = Mask::documents(integers(ids)) & Mask::causal();
    expect_derivatives(documents);
  }

  Trial packed{.q = wide({1, 2, 9, 3}, 1), .k = wide({1, 1, 11, 3}, 2), .v = wide({1, 1, 11, 2}, 3)};
  packed.options.cu_seqlens_q = integers({0, 4, 4, 9});
  packed.options.cu_seqlens_k = integers({0, 3, 5, 11});
  packed.options.sinks = wide({2}, 4);
  packed.options.mask = Mask::causal(Align::bottom_right);
  expect_derivatives(packed);
}

TEST(Gradient, ReplaysDropout) {
  Trial s = trial(2, 2, 6, 9, 3, 2);
  s.dropout = 0.3;
  s.options.sinks = wide({2}, 4);
  s.options.bias = Bias::dense(wide({6, 9}, 5));
  expect_derivatives(s);
  Trial long_rows = trial(1, 1, 70, 66, 2, 1);
  long_rows.dropout = 0.5;
  expect_derivatives(long_rows);
}

// --- on the tape ---------------------------------------------------------------------------------------------------

TEST(Gradient, ReachesWhatTheCallWasMadeOf) {
  const Tensor sinks = wide({4}, 4).requires_grad_(), table = wide({8, 4}, 5).requires_grad_(),
               w = wide({3, 5}, 6).requires_grad_();
  const auto function = [&](const std::vector<Tensor>& in) {
    AttentionOptions options{.score = Score::general(in[5]), .mask = Mask::causal(Align::bottom_right)};
    options.sinks = in[3];
    options.bias = Bias::relative(in[4], true, 16, Align::top_left) + Bias::dense(in[6]);
    options.softcap = 2;
    return attention(in[0].transpose(1, 2), in[1], in[2], options).output;
  };
  const std::vector<Tensor> inputs{wide({2, 5, 4, 3}, 1).requires_grad_(),
                                   wide({2, 2, 7, 5}, 2).requires_grad_(),
                                   wide({2, 4, 7, 2}, 3).requires_grad_(),
                                   sinks,
                                   table,
                                   w,
                                   wide({1, 5, 1}, 9).requires_grad_()};
  EXPECT_EQ(check_gradients(function, inputs), "");
}

TEST(Gradient, ComesThroughTheLogsumexpAndSmallerRanks) {
  const std::vector<Tensor> inputs{wide({5, 3}, 1).requires_grad_(), wide({7, 3}, 2).requires_grad_(),
                                   wide({7, 2}, 3).requires_grad_()};
  EXPECT_EQ(
      check_gradients([](const std::vector<Tensor>& in) { return attention(in[0], in[1], in[2]).logsumexp; }, inputs),
      "");
  EXPECT_EQ(check_gradients(
                [](const std::vector<Tensor>& in) {
                  const AttentionResult r = attention(in[0], in[1], in[2], {.temperature = 0.5});
                  return cat({r.output, r.logsumexp.unsqueeze(-1)}, -1);
                },
                inputs),
            "");
  EXPECT_EQ(check_gradients(
                [](const std::vector<Tensor>& in) {
                  return scaled_dot_product_attention(in[0], in[1], in[2], {.is_causal = true});
                },
                inputs),
            "");
}

TEST(Gradient, OfDropoutIsThatOfTheSameDraw) {
  const std::vector<Tensor> inputs{wide({2, 2, 5, 3}, 1).requires_grad_(), wide({2, 2, 7, 3}, 2).requires_grad_(),
                                   wide({2, 2, 7, 2}, 3).requires_grad_()};
  const auto function = [](const std::vector<Tensor>& in) {
    Generator generator(3);
    return scaled_dot_product_attention(in[0], in[1], in[2], {.dropout_p = 0.4, .generator = &generator});
  };
  EXPECT_EQ(check_gradients(function, inputs), "");
}

TEST(Gradient, OfHalfFloatsIsThatOfF32RoundedOnce) {
  for (const Dtype dtype : {Dtype::bf16, Dtype::f16}) {
    const Dims sizes{1, 2, 70, 32};
    const Tensor dy = normal(sizes, 4).to(dtype);
    std::vector<Tensor> narrow, wide_ones;
    for (const std::uint64_t seed : {1, 2, 3}) {
      narrow.push_back(normal(sizes, seed).to(dtype).requires_grad_());
      wide_ones.push_back(narrow.back().detach().to(Dtype::f32).requires_grad_());
    }
    backward(attention(narrow[0], narrow[1], narrow[2], {.mask = Mask::causal()}).output, dy);
    backward(attention(wide_ones[0], wide_ones[1], wide_ones[2], {.mask = Mask::causal()}).output, dy.to(Dtype::f32));
    for (std::size_t n = 0; n < 3; ++n) {
      ASSERT_EQ(narrow[n].grad().dtype(), dtype);
      const std::vector<double> truth = wide_ones[n].grad().to_vector();
      expect_within(narrow[n].grad(), truth, truth, dtype == Dtype::bf16 ? 0x1p-8 : 0x1p-11);
    }
  }
}

}  // namespace
}  // namespace attn::testing
