// tests/attention/normalizer_test.cc: other normalizers than softmax, and functions of the weight: values and gradients
// beside plain operations; what is masked; memory; errors.
#include <attn/autograd.h>
#include <attn/ops.h>

#include "attention/normalizers.h"
#include "runtime/memory.h"
#include "support/errors.h"
#include "support/golden.h"
#include "support/sanitized.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace attn::testing {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();

/// Weights of one row by the formula, by sorting.
std::vector<double> weights_of(const Normalizer& normalizer, const std::vector<double>& s, double keys) {
  std::vector<double> seen;
  for (const double x : s)
    if (x > -infinity) seen.push_back(x);
  std::vector<double> w(s.size(), 0.0);
  if (seen.empty()) return w;
  std::sort(seen.rbegin(), seen.rend());
  const auto each = [&](auto&& f) {
    for (std::size_t n = 0; n < s.size(); ++n)
      if (s[n] > -infinity) w[n] = f(s[n]);
  };
  double threshold = 0, sum = 0, squares = 0;
  switch (normalizer.kind) {
    case Normalizer::Kind::sigmoid:
      each([&](double x) { return 1 / (1 + std::exp(-(x + normalizer.number.value_or(-std::log(keys))))); });
      break;
    case Normalizer::Kind::relu_squared:
      each([&](double x) { return normalizer.number.value_or(1 / keys) * std::max(x, 0.0) * std::max(x, 0.0); });
      break;
    case Normalizer::Kind::sparsemax:
      for (std::size_t n = 0; n < seen.size(); ++n) {
        sum += seen[n];
        if (1 + static_cast<double>(n + 1) * seen[n] > sum) threshold = (sum - 1) / static_cast<double>(n + 1);
      }
      each([&](double x) { return std::max(x - threshold, 0.0); });
      break;
    case Normalizer::Kind::entmax15:
      for (std::size_t n = 0; n < seen.size(); ++n) {
        const double count = static_cast<double>(n + 1), z = (seen[n] - seen[0]) / 2;
        sum += z;
        squares += z * z;
        const double mean = sum / count, rest = (1 - (squares - count * mean * mean)) / count;
        if (rest >= 0 && mean - std::sqrt(rest) <= z) threshold = mean - std::sqrt(rest);
      }
      each([&](double x) { return std::pow(std::max((x - seen[0]) / 2 - threshold, 0.0), 2); });
      break;
    default:
      for (const double x : seen) sum += std::exp(x - seen[0]);
      if (normalizer.kind == Normalizer::Kind::softmax1) sum += std::exp(-seen[0]);
      each([&](double x) { return std::exp(x - seen[0]) / sum; });
  }
  return w;
}

/// The weights of whole matrices in f64, by the formula.
Tensor plain_weights(const Normalizer& normalizer, const Tensor& scores) {
  const std::vector<double> all = scores.to_vector();
  const std::int64_t keys = scores.size(3);
  std::vector<double> weights;
  for (std::size_t first = 0; first < all.size(); first += static_cast<std::size_t>(keys)) {
    const auto from = all.begin() + static_cast<std::ptrdiff_t>(first);
    const std::vector<double> row = weights_of(normalizer, {from, from + keys}, static_cast<double>(keys));
    weights.insert(weights.end(), row.begin(), row.end());
  }
  return tensor<double>(weights, scores.sizes());
}

TEST(Normalizer, WeightsAreThoseOfTheFormula) {
  const OptionSizes z{.rows = 150};
  const Tensor q = exact({1, z.heads, z.rows, z.dim}, Dtype::f32, 1), k = exact(q.sizes(), Dtype::f32, 2),
               v = exact(q.sizes(), Dtype::f32, 3);
  for (const Normalizer& normalizer : every_normalizer())
    for (const Dtype dtype : {Dtype::f32, Dtype::f64}) {
      SCOPED_TRACE(::testing::Message() << normalizer << " " << name_of(dtype));
      const Tensor scores = matmul(q.to(Dtype::f64), k.to(Dtype::f64).transpose(2, 3)) / 4;
      Tensor masked = scores.clone();
      for (std::int64_t h = 0; h < z.heads; ++h)
        for (std::int64_t i = 0; i < z.rows; ++i)
          for (std::int64_t j = i + 1; j < z.rows; ++j)
            masked.data<double>()[(h * z.rows + i) * z.rows + j] = -infinity;
      const AttentionResult ours =
          attention(q.to(dtype), k.to(dtype), v.to(dtype),
                    {.mask = Mask::causal(), .normalizer = normalizer, .weights = Weights::full});
      const Tensor truth = plain_weights(normalizer, masked);
      const double eps = dtype == Dtype::f32 ? 0x1p-23 : 0x1p-52;
      // a score has a magnitude of up to 60; its rounding is that of the weights
      EXPECT_LE(max(abs(ours.weights.to(Dtype::f64) - truth)).item(), 64 * eps * std::max(1.0, max(truth).item()));
      EXPECT_LE(max(abs(ours.output.to(Dtype::f64) - matmul(truth, v.to(Dtype::f64)))).item(),
                1024 * eps * std::max(1.0, max(truth).item()));
      EXPECT_EQ(ours.logsumexp.defined(),
                normalizer.kind == Normalizer::Kind::softmax || normalizer.kind == Normalizer::Kind::softmax1);
      if (normalizer.kind == Normalizer::Kind::sparsemax || normalizer.kind == Normalizer::Kind::entmax15) {
        EXPECT_GT(sum(eq(ours.weights, 0)).item(), 0.75 * static_cast<double>(ours.weights.numel()));
      }
    }
}

TEST(Normalizer, Softmax1HasTheBitsOfASinkOfZero) {
  const OptionSizes z{.rows = 150};
  const Tensor q = exact({1, z.heads, z.rows, z.dim}, Dtype::f32, 1);
  EXPECT_TRUE(bits_equal(attention(q, q, q, {.normalizer = Normalizer::softmax1()}).output,
                         attention(q, q, q, {.sinks = zeros({z.heads})}).output));
}

/// A call whose operands and tables get gradients, and all gradients of it.
struct Differentiated {
  Tensor q, k, v, head, key;
  Tensor output;
  std::vector<Tensor> gradients;

  Differentiated(const OptionSizes& z, const Option& option, const Normalizer& normalizer, bool modified, Dtype dtype,
                 bool unfused) {
    const auto leaf = [&](const Dims& sizes, std::uint64_t seed) {
      return exact(sizes, z.dtype, seed).to(dtype).clone().requires_grad_();
    };
    const Dims rows{1, z.heads, z.rows, z.dim};
    q = leaf(rows, 1), k = leaf(rows, 2), v = leaf(rows, 3), head = leaf({z.heads}, 31), key = leaf({z.rows}, 32);
    OptionSizes sizes = z;
    sizes.dtype = dtype;
    AttentionOptions options = with(option.make(sizes, as_it_is), normalizer);
    const WeightFunction function(head, key);
    if (modified) options.weight_mod = function.expression();
    const Tensor weigh = exact(rows, z.dtype, 4).to(dtype);
    std::vector<Tensor> inputs{q, k, v};
    if (modified) inputs.insert(inputs.end(), {head, key});
    output = attention(q, k, v, options).output;
    gradients = grad({(output * weigh).sum()}, inputs, {.create_graph = unfused});
  }
};

TEST(Normalizer, GradientsAreAsNearTheTruthAsPlainOperations) {
  for (const Normalizer& normalizer : every_normalizer())
    for (const Option& option : options_of(normalizer))
      for (const bool modified : {false, true}) {
        SCOPED_TRACE(::testing::Message() << normalizer << " " << option.name << (modified ? " modified" : ""));
        const OptionSizes z{.rows = 70, .dim = 8};
        const Differentiated ours(z, option, normalizer, modified, Dtype::f32, false),
            plain(z, option, normalizer, modified, Dtype::f32, true),
            truth(z, option, normalizer, modified, Dtype::f64, true);
        for (std::size_t n = 0; n < ours.gradients.size(); ++n) {
          SCOPED_TRACE(n);
          // where a weight is nearly 0, its place in the support is the rounding's choice
          expect_within(ours.gradients[n], plain.gradients[n].to_vector(), truth.gradients[n].to_vector(), 4 * 0x1p-23);
        }
      }
}

TEST(Normalizer, GradientsAreTheLimitOfDifferences) {
  for (const Normalizer& normalizer : every_normalizer()) {
    SCOPED_TRACE(normalizer.to_string());
    const auto call = [&](const std::vector<Tensor>& x) {
      const WeightFunction function(x[3], x[4]);
      return attention(x[0], x[1], x[2],
                       {.mask = Mask::causal(), .normalizer = normalizer, .weight_mod = function.expression()})
          .output;
    };
    std::vector<Tensor> inputs;
    for (std::uint64_t n = 0; n < 3; ++n) inputs.push_back(normal({1, 2, 5, 3}, 40 + n, Dtype::f64).requires_grad_());
    inputs.push_back(normal({2}, 50, Dtype::f64).requires_grad_());
    inputs.push_back(normal({5}, 51, Dtype::f64).requires_grad_());
    EXPECT_EQ(check_gradients(call, inputs), "");
  }
}

// --- what is masked, memory, errors ----------------------------------------------------------------------------------

TEST(Normalizer, WhatIsHiddenTakesNoPart) {
  const OptionSizes z{.rows = 70, .dim = 8};
  const Tensor mask = empty({z.rows, z.rows}, Dtype::boolean);
  for (std::int64_t i = 0; i < z.rows; ++i)
    for (std::int64_t j = 0; j < z.rows; ++j) mask.data<bool>()[i * z.rows + j] = i != 5 && j % 2;
  for (const Normalizer& normalizer : every_normalizer()) {
    SCOPED_TRACE(normalizer.to_string());
    AttentionOptions options = with({}, normalizer, &z);
    options.mask = Mask::attend(mask);
    const auto run = [&](double what) {
      std::vector<Tensor> x;
      for (std::uint64_t n = 1; n < 4; ++n) {
        x.push_back(exact({1, z.heads, z.rows, z.dim}, Dtype::f32, n).clone());
        for (std::int64_t j = 0; n > 1 && j < z.rows; j += 2)
          if (what != 0) x.back().slice(2, j, j + 1).fill_(what);
        if (n == 1 && what != 0) x.back().slice(2, 5, 6).fill_(what);
        x.back().requires_grad_();
      }
      const Tensor output = attention(x[0], x[1], x[2], options).output;
      std::vector<Tensor> all = grad({(output * exact(output.sizes(), Dtype::f32, 4)).sum()}, x);
      all.push_back(output.detach());
      return all;
    };
    const std::vector<Tensor> expected = run(0);
    for (const double what : {nan, infinity, -infinity}) {
      const std::vector<Tensor> ours = run(what);
      EXPECT_TRUE(bits_equal(ours[3], expected[3])) << what;
      for (std::size_t n = 0; n < 3; ++n) {
        const Tensor rows = n == 0 ? ours[n] : ours[n].slice(2, 1, 2),
                     same = n == 0 ? expected[n] : expected[n].slice(2, 1, 2);
        EXPECT_TRUE(bits_equal(rows, same)) << what << " " << n;
      }
    }
    EXPECT_TRUE(bits_equal(expected[3].slice(2, 5, 6), zeros({1, z.heads, 1, z.dim})));
  }
}

TEST(Normalizer, NeedsNoMemoryForPairs) {
  const OptionSizes z{.rows = sanitized ? 2048 : 8192, .dim = 4};
  const Tensor q = exact({1, z.heads, z.rows, z.dim}, Dtype::f32, 1).requires_grad_();
  for (const Normalizer& normalizer : every_normalizer()) {
    const std::size_t before = runtime::allocated_bytes();
    runtime::reset_peak();
    attention(q, q, q, with({.mask = Mask::window(200, 0)}, normalizer, &z)).output.sum().backward();
    EXPECT_LT(runtime::peak_bytes() - before, std::size_t{24} << 20) << normalizer;
  }
}

TEST(Normalizer, ErrorsNameWhatIsGivenAndWhatIsNeeded) {
  const Tensor x = exact({1, 2, 5, 4}, Dtype::f32, 1);
  const auto error = [&](const AttentionOptions& options) {
    return error_of<ValueError>([&] { attention(x, x, x, options); });
  };
  EXPECT_EQ(error({.normalizer = Normalizer::sigmoid(), .sinks = zeros({2})}),
            "attention: sinks are given with the normalizer sigmoid; they are logits in the sum of softmax");
  EXPECT_EQ(error({.normalizer = Normalizer::softmax1(), .sinks = zeros({2})}),
            "attention: sinks are given with the normalizer softmax1, which is softmax with sinks of 0");
  EXPECT_EQ(error({.score_callback = [](const ScoreTile&) {}, .normalizer = Normalizer::sparsemax()}),
            "attention: a score_callback is given with the normalizer sparsemax; write it as a score_mod");
  EXPECT_EQ(error({.normalizer = Normalizer::sigmoid(nan)}),
            "attention: the number of the normalizer sigmoid(nan) is nan; sigmoid and relu_squared take a finite one");
  EXPECT_EQ(error({.weight_mod = [](auto w, auto, auto, auto, auto) { return w > 0; }}),
            "attention: weight_mod \"s > 0\" is a condition; it must be a number (where(condition, s, 0) hides)");
  EXPECT_EQ(error({.normalizer = Normalizer::relu_squared(-0.5)}),
            "attention: the scale of the normalizer relu_squared(-0.5) is negative; it must be at least 0");
  EXPECT_EQ(error_of<ValueError>([] { Normalizer::parse("soft"); }),
            "Normalizer::parse: \"soft\"; it must be softmax, softmax1, sigmoid, sigmoid(BIAS), sparsemax, entmax15, "
            "relu_squared or relu_squared(SCALE)");
  for (const Normalizer& normalizer : every_normalizer())
    EXPECT_EQ(Normalizer::parse(normalizer.to_string()).to_string(), normalizer.to_string());
}

}  // namespace
}  // namespace attn::testing
