// tests/attention/dropout_test.cc: dropout by counter: the same weights again and wherever the rows lie; mean and
// variance; memory.
#include <attn/autograd.h>
#include <attn/runtime.h>

#include "attention/inputs.h"
#include "kernels/philox.h"
#include "runtime/memory.h"
#include "support/errors.h"
#include "support/golden.h"

#include <gtest/gtest.h>

namespace attn::testing {
namespace {

AttentionResult run(const Inputs& in, const AttentionOptions& options) { return attention(in.q, in.k, in.v, options); }

/// Whether row i keeps key j by the generator itself.
bool keeps(std::uint64_t seed, double p, std::uint32_t b, std::uint32_t h, std::int64_t i, std::int64_t j) {
  std::uint32_t c[4] = {b, h, static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(j / 4)};
  kernels::Philox(seed).words(c);
  return c[j % 4] >= p * 4294967296.0;
}

TEST(Dropout, KeepsWhatTheCounterSaysAndScalesIt) {
  const std::int64_t rows = 70, keys = 130;
  const std::uint64_t seed = 0x123456789abcdef0u;
  const Inputs in = inputs({2, 3, rows, 16}, {2, 3, keys, 16});
  const Tensor before = run(in, {.weights = Weights::full}).weights;
  const AttentionResult after = run(in, {.dropout_p = 0.3, .dropout_seed = seed, .weights = Weights::full});
  EXPECT_EQ(after.dropout_seed, seed);
  const float scale = 1.0f / static_cast<float>(1 - 0.3);
  std::size_t n = 0;
  const auto* plain = before.data<float>();
  const auto* dropped = after.weights.data<float>();
  for (std::uint32_t b = 0; b < 2; ++b)
    for (std::uint32_t h = 0; h < 3; ++h)
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < keys; ++j, ++n)
          ASSERT_EQ(dropped[n], keeps(seed, 0.3, b, h, i, j) ? plain[n] * scale : 0.0f) << n;
  expect_within(after.output, matmul(after.weights, in.v).to_vector(),
                matmul(after.weights.to(Dtype::f64), in.v.to(Dtype::f64)).to_vector(), 0x1p-23);
}

TEST(Dropout, TheSeedRepeatsItAndTheGeneratorDrawsIt) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16}) {
    const Inputs in = inputs({1, 2, 100, 16}, {1, 2, 300, 16}, dtype);
    const AttentionOptions options{.mask = Mask::causal(Align::bottom_right), .dropout_p = 0.2};
    Generator generator(7), same(7);
    AttentionOptions drawn = options, again = options;
    drawn.generator = &generator;
    const AttentionResult first = run(in, drawn);
    EXPECT_EQ(first.dropout_seed, same.u64());
    EXPECT_EQ(generator.u64(), same.u64());  // no more was drawn
    again.dropout_seed = first.dropout_seed;
    EXPECT_TRUE(bits_equal(run(in, again).output, first.output));
    EXPECT_FALSE(bits_equal(run(in, drawn).output, first.output));
    EXPECT_TRUE(bits_equal(run(in, again).logsumexp, run(in, {.mask = options.mask}).logsumexp));
    manual_seed(3);
    const AttentionResult global = run(in, options);
    manual_seed(3);
    EXPECT_EQ(run(in, options).dropout_seed, global.dropout_seed);
  }
}

TEST(Dropout, TheCutOfTheWorkDoesNotMatter) {
  const std::int64_t tokens = 1100;
  const Inputs in = inputs({1, 4, tokens, 8}, {1, 2, tokens, 8});
  const AttentionOptions options{.mask = Mask::causal(), .dropout_p = 0.1, .dropout_seed = 5};
  const Tensor whole = run(in, options).output;
  const int before = num_threads();
  for (const int threads : {1, 3}) {
    set_num_threads(threads);
    EXPECT_TRUE(bits_equal(run(in, options).output, whole));
  }
  set_num_threads(before);
  for (const std::int64_t i : {0, 63, 700, 1099}) {  // a row alone, at its position
    AttentionOptions row = options;
    row.query_start = integers({i});
    EXPECT_TRUE(bits_equal(run({in.q.narrow(2, i, 1), in.k, in.v}, row).output, whole.narrow(2, i, 1))) << i;
  }
  AttentionOptions padded = options;  // keys that the padding moved
  padded.key_start = integers({7});
  padded.query_start = integers({0});
  const Tensor waste = zeros({1, 2, 7, 8});
  EXPECT_TRUE(bits_equal(run({in.q, cat({waste, in.k}, 2), cat({waste, in.v}, 2)}, padded).output, whole));
}

/// A sequence of a packed call drops what the batch item of its number does; documents, what the whole sequence does.
TEST(Dropout, OfPackedSequencesAndDocuments) {
  const Inputs in = inputs({1, 2, 90, 8}, {1, 2, 90, 8});
  AttentionOptions options{.mask = Mask::causal(), .dropout_p = 0.4, .dropout_seed = 11};
  const AttentionResult batch = run({in.q.reshape({1, 2, 3, 30, 8}).squeeze(0).transpose(0, 1),
                                     in.k.reshape({1, 2, 3, 30, 8}).squeeze(0).transpose(0, 1),
                                     in.v.reshape({1, 2, 3, 30, 8}).squeeze(0).transpose(0, 1)},
                                    options);
  AttentionOptions packed = options;
  packed.cu_seqlens_q = integers({0, 30, 60, 90});
  EXPECT_TRUE(bits_equal(run(in, packed).output.reshape({2, 3, 30, 8}).transpose(0, 1), batch.output));
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < 90; ++i) ids.push_back(i / 31);
  AttentionOptions documents = options;
  documents.mask = options.mask & Mask::documents(integers(ids));
  documents.weights = Weights::full;
  const Tensor kept = run(in, documents).weights;
  const auto* weight = kept.data<float>();
  for (std::uint32_t h = 0; h < 2; ++h)
    for (std::int64_t i = 0; i < 90; ++i)
      for (std::int64_t j = 0; j < 90; ++j, ++weight)
        ASSERT_EQ(*weight != 0, j <= i && i / 31 == j / 31 && keeps(11, 0.4, 0, h, i, j));
}

TEST(Dropout, MeanAndVarianceOverTenMillionDraws) {
  const std::int64_t heads = 10, rows = 1000, keys = 1000;
  for (const double p : {0.1, 0.5}) {
    const Tensor uniform = zeros({1, heads, rows, 8}), k = zeros({1, heads, keys, 8});
    const Tensor weights =
        attention(uniform, k, k, {.dropout_p = p, .dropout_seed = 99, .weights = Weights::full}).weights;
    const auto* weight = weights.data<float>();
    const auto count = static_cast<double>(weights.numel());
    double kept = 0;
    std::vector<double> of_row(static_cast<std::size_t>(heads * rows)), of_key(static_cast<std::size_t>(keys));
    for (std::int64_t n = 0; n < weights.numel(); ++n)
      if (weight[n] != 0) {
        ++kept;
        ++of_row[static_cast<std::size_t>(n / keys)];
        ++of_key[static_cast<std::size_t>(n % keys)];
      }
    // a binomial of `draws` has mean draws (1 - p) and variance draws p (1 - p); five standard deviations of each
    // statistic
    const double variance = p * (1 - p);
    EXPECT_NEAR(kept, count * (1 - p), 5 * std::sqrt(count * variance)) << p;
    const auto spread = [&](const std::vector<double>& counts) {
      const double draws = count / static_cast<double>(counts.size());
      double sum = 0;
      for (const double n : counts) sum += (n - draws * (1 - p)) * (n - draws * (1 - p));
      const double measured = sum / static_cast<double>(counts.size()) / (draws * variance);
      EXPECT_NEAR(measured, 1, 5 * std::sqrt(2 / static_cast<double>(counts.size()))) << p;
    };
    spread(of_row);
    spread(of_key);
    EXPECT_EQ(weight[0] == 0 ? weight[1] == 0 ? weight[2] : weight[1] : weight[0],
              1.0f / 1000 * (1.0f / static_cast<float>(1 - p)));
  }
}

TEST(Dropout, NothingAndEverything) {
  const Inputs in = inputs({1, 2, 20, 8}, {1, 2, 40, 8});
  Generator generator(7), same(7);
  const Tensor plain = run(in, {}).output;
  EXPECT_TRUE(bits_equal(run(in, {.dropout_p = 0, .generator = &generator}).output, plain));
  const AttentionResult all = run(in, {.dropout_p = 1, .generator = &generator});
  EXPECT_TRUE(bits_equal(all.output, zeros(plain.sizes())));
  EXPECT_EQ(generator.u64(), same.u64());  // neither drew
  EXPECT_EQ(error_of<ValueError>([&] { run(in, {.dropout_p = 1.5}); }),
            "attention: dropout_p is 1.5; it must be from 0 to 1");
  EXPECT_EQ(error_of<ValueError>([&] { run(in, {.dropout_p = -0.1}); }),
            "attention: dropout_p is -0.1; it must be from 0 to 1");
}

/// bf16 with its own product: dropped weights against those of f32, by the error rule.
TEST(Dropout, OfSixteenBits) {
  for (const Dtype dtype : {Dtype::bf16, Dtype::f16}) {
    const Inputs in = inputs({1, 2, 70, 32}, {1, 2, 333, 32}, dtype);
    const AttentionOptions options{.mask = Mask::causal(Align::bottom_right), .dropout_p = 0.25, .dropout_seed = 4};
    const Tensor ours = run(in, options).output;
    AttentionOptions wide = options;
    wide.weights = Weights::full;
    const Tensor weights = attention(in.q.to(Dtype::f64), in.k.to(Dtype::f64), in.v.to(Dtype::f64), wide).weights;
    const Tensor truth = matmul(weights, in.v.to(Dtype::f64));
    const Tensor naive = matmul(weights.to(dtype), in.v);  // weights rounded once, as unfused code has them
    expect_within(ours, naive.to_vector(), truth.to_vector(), dtype == Dtype::bf16 ? 0x1p-7 : 0x1p-10);
  }
}

/// dV = D^T dO and dQ, dK through the weights P before dropout, D = P kept and scaled: against the same formulas in
/// f64.
TEST(Dropout, TheGradientReplaysIt) {
  for (const bool packed : {false, true}) {
    const Inputs in = inputs({1, 2, 90, 8}, {1, 2, 90, 8});
    AttentionOptions options{.mask = Mask::causal(), .weights = Weights::full};
    if (packed) options.cu_seqlens_q = integers({0, 31, 90});
    const Tensor before = run(in, options).weights;
    options.dropout_p = 0.3;
    options.dropout_seed = 8;
    const Tensor after = run(in, options).weights, dout = normal({1, 2, 90, 8}, 4);
    const auto by_formula = [&](Dtype dtype) {
      const Tensor p = before.to(dtype), d = after.to(dtype), dy = dout.to(dtype), q = in.q.to(dtype),
                   k = in.k.to(dtype), v = in.v.to(dtype);
      const Tensor factor = mul(gt(d, 0).to(dtype), 1 / 0.7), dp = mul(matmul(dy, v.transpose(2, 3)), factor);
      const Tensor ds = mul(mul(p, sub(dp, sum(mul(p, dp), {-1}, true))), 1 / std::sqrt(8.0));
      return std::vector<Tensor>{matmul(ds, k), matmul(ds.transpose(2, 3), q), matmul(d.transpose(2, 3), dy)};
    };
    const std::vector<Tensor> naive = by_formula(Dtype::f32), truth = by_formula(Dtype::f64);
    options.weights = Weights::none;
    const std::vector<Tensor> leaves{in.q.clone().requires_grad_(), in.k.clone().requires_grad_(),
                                     in.v.clone().requires_grad_()};
    attention(leaves[0], leaves[1], leaves[2], options).output.backward(dout);
    for (std::size_t n = 0; n < 3; ++n)
      expect_within(leaves[n].grad(), naive[n].to_vector(), truth[n].to_vector(), 0x1p-23);
  }
}

/// Not even where the weights that are not numbers are all dropped.
TEST(Dropout, MakesNoNumberOfARowThatIsNone) {
  for (const std::int64_t rows : {1, 3, 70})
    for (std::uint64_t seed = 0; seed < 16; ++seed) {
      const Inputs in = inputs({1, 2, rows, 8}, {1, 2, 17, 8});
      in.k.slice(2, 3, 4).fill_(std::numeric_limits<double>::quiet_NaN());
      const AttentionResult result = attention(in.q, in.k, in.v, {.dropout_p = 0.9, .dropout_seed = seed});
      for (const Tensor& part : {result.output, result.logsumexp})
        for (const double x : part.to_vector()) ASSERT_TRUE(std::isnan(x)) << rows << " rows, seed " << seed;
    }
}

TEST(Dropout, StoresNoMask) {
  const Tensor x = normal({1, 1, 8192, 8}, 1);
  const Tensor out = empty({1, 1, 8192, 8});
  const AttentionOptions options{.dropout_p = 0.1, .out = out};
  attention(x.narrow(2, 0, 256), x, x, {.dropout_p = 0.1});  // the threads' scratch
  runtime::reset_peak();
  const std::size_t before = runtime::allocated_bytes();
  attention(x, x, x, options);
  EXPECT_LT(runtime::peak_bytes() - before, std::size_t{4} << 20);
}

TEST(Dropout, TheGradientStoresNoMaskEither) {
  const Dims sizes{1, 2, 4096, 64};
  const Tensor q = normal(sizes, 1).requires_grad_(), dout = normal(sizes, 2);
  runtime::reset_peak();
  const std::size_t before = runtime::allocated_bytes();
  const Tensor output = attention(q, q, q, {.dropout_p = 0.1}).output;
  grad({output}, {q}, {.grad_outputs = {dout}});
  // the output, three gradients, a sum of two of them
  const std::size_t results = 5 * static_cast<std::size_t>(q.numel()) * sizeof(float);
  EXPECT_LT(runtime::peak_bytes() - before, results + (std::size_t{8} << 20));
  EXPECT_LT(std::size_t{8} << 20, std::size_t{4096} * 4096);  // of one of two heads, a byte a pair
}

}  // namespace
}  // namespace attn::testing
