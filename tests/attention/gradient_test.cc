// tests/attention/gradient_test.cc: the backward pass against central differences in f64; threads; what is hidden;
// memory.
#include "attention/call/check.h"
#include "attention/backward.h"

#include <attn/autograd.h>
#include <attn/runtime.h>

#include "attention/schedule/run.h"
#include "runtime/memory.h"
#include "support/errors.h"
#include "support/golden.h"
#include "attention/truth.h"

#include <gtest/gtest.h>

namespace attn::testing {
namespace {

/// A call and how its results are weighed into one number.
struct Trial {
  Tensor q, k, v;
  AttentionOptions options = {};
  double dropout = 0;
  Tensor doutput = {}, dlogsumexp = {};  // made where they are not given; logsumexp only where rows see something

  Call call() const { return check("test", q, k, v, options); }
};

SavedAttention forward(const Trial& s, Call& call, Tensor* logsumexp = nullptr) {
  kernels::AttentionProblem& p = call.problem;
  const Dims rows{p.batch, p.q_heads, p.q_rows};
  Plan plan;
  const AttentionKernel& kernel = plan_attention(p, plan);
  Generator generator(11);
  SavedAttention saved{
      .output = empty({p.batch, p.q_heads, p.q_rows, p.value_dim}, call.dtype()),
      .max = empty(rows, call.compute_dtype()),
      .sum = empty(rows, call.compute_dtype()),
      .dropout = std::make_shared<DropoutTiles>(
          s.dropout, DropoutTiles::Shape{p.batch * p.q_heads, p.q_rows, p.k_rows, kernel.query_tile_rows}, &generator)};
  const Tensor lse = empty(rows, call.compute_dtype());
  p.out = saved.output.data(), p.logsumexp = lse.data(), p.max = saved.max.data(), p.sum = saved.sum.data();
  for (int d = 0; d < 3; ++d) p.out_stride[d] = saved.output.stride(d);
  run_attention(call, kernel, *saved.dropout, nullptr);
  if (logsumexp != nullptr) *logsumexp = lse;
  return saved;
}

AttentionGradients gradients(const Trial& s) {
  Call call = s.call();
  AttentionBackward options;
  options.output = s.doutput;
  options.logsumexp = s.dlogsumexp;
  return attention_backward(call, forward(s, call), options);
}

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
    const double allowed = std::abs(fine - coarse) + 64 * 0x1p-52 * std::max(1.0, std::abs(f[4])) / h;
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

// --- bits ----------------------------------------------------------------------------------------------------------

Trial f32_setup(const Dims& q, const Dims& kv) {
  return {
      .q = normal(q, 1), .k = normal(kv, 2), .v = normal(kv, 3), .options = {}, .dropout = 0, .doutput = normal(q, 4)};
}

void expect_same_bits(const AttentionGradients& a, const AttentionGradients& b) {
  EXPECT_TRUE(bits_equal(a.q, b.q));
  EXPECT_TRUE(bits_equal(a.k, b.k));
  EXPECT_TRUE(bits_equal(a.v, b.v));
  if (b.sinks.defined()) { EXPECT_TRUE(bits_equal(a.sinks, b.sinks)); }
  for (std::size_t n = 0; n < b.bias.size(); ++n) EXPECT_TRUE(bits_equal(a.bias[n], b.bias[n]));
}

TEST(Gradient, HasTheSameBitsOnAnyNumberOfThreads) {
  const int before = num_threads();
  for (const Dims& q : {Dims{1, 1, 700, 32}, Dims{1, 3, 300, 32}, Dims{1, 8, 130, 32}}) {
    Trial s = f32_setup(q, {1, q[1] % 2 == 0 ? q[1] / 2 : 1, 520, 32});
    s.options.mask = Mask::causal(Align::bottom_right) | Mask::window(-1, 3, Align::top_left);
    s.options.bias = Bias::dense(normal({q[2], 520}, 6)) + Bias::alibi(Bias::alibi_slopes(q[1]), Align::bottom_right);
    s.dropout = q[1] == 3 ? 0.2 : 0;
    set_num_threads(1);
    const AttentionGradients alone = gradients(s);
    for (const int threads : {2, 3, 8}) {
      set_num_threads(threads);
      SCOPED_TRACE(threads);
      expect_same_bits(gradients(s), alone);
    }
  }
  set_num_threads(before);
}

/// Every way to share a bias: units side by side, one behind the other, or steps in a wave; also where a head is
/// decided again.
TEST(Gradient, OfABiasThatIsSharedHasTheSameBitsOnAnyNumberOfThreads) {
  const int before = num_threads();
  const std::int64_t rows = 200, keys = 150;
  for (const std::int64_t key_heads : {4, 2, 1})
    for (const Dims& bias :
         {Dims{rows, keys}, Dims{1, 4, rows, keys}, Dims{3, 1, rows, keys}, Dims{1, 1, 1, keys}, Dims{3, 1, 1, keys},
          Dims{1, 4, 1, keys}, Dims{4, rows, 1}, Dims{rows, 1}, Dims{4, 1, 1}, Dims{1}}) {
      SCOPED_TRACE(to_string(bias));
      Trial s = f32_setup({3, 4, rows, 16}, {3, key_heads, keys, 16});
      s.options.mask = Mask::causal(Align::bottom_right);
      s.options.key_lengths = tensor<std::int64_t>({keys, 70, keys});
      // hidden, and 0 does not silence it
      s.k.select(0, 1).narrow(1, 70, 1).fill_(std::numeric_limits<double>::quiet_NaN());
      s.options.bias = Bias::dense(normal(bias, 6)) + Bias::dense(normal({rows, keys}, 7));
      set_num_threads(1);
      const AttentionGradients alone = gradients(s);
      for (int repeat = 0; repeat < 3; ++repeat)
        for (const int threads : {2, 3, 8}) {
          set_num_threads(threads);
          expect_same_bits(gradients(s), alone);
        }
    }
  set_num_threads(before);
}

/// The first key block that a row sees shrinks from one block of rows to the next: a step may be done while the one
/// before has keys left.
TEST(Gradient, HandsKeysOnInOrderWhereRowsSeeFewerAndFewerKeys) {
  const int before = num_threads();
  Trial s = f32_setup({1, 1, 640, 16}, {1, 1, 640, 16});
  s.options.mask = Mask::causal(Align::top_left) & ~Mask::window(100, -1, Align::top_left);
  for (const Mask& mask : {s.options.mask, ~Mask::causal(Align::top_left), Mask::prefix(70)}) {
    s.options.mask = mask;
    set_num_threads(1);
    const AttentionGradients alone = gradients(s);
    for (int repeat = 0; repeat < 20; ++repeat) {
      set_num_threads(2 + 2 * (repeat % 2));
      expect_same_bits(gradients(s), alone);
    }
  }
  set_num_threads(before);
}

TEST(Gradient, OfABatchItemDoesNotDependOnItsBatchOrPadding) {
  Trial both = f32_setup({2, 2, 150, 16}, {2, 2, 150, 16});
  both.options.mask = Mask::causal(Align::top_left);
  both.options.query_lengths = integers({150, 90});
  both.options.key_lengths = integers({150, 90});
  const AttentionGradients g = gradients(both);
  const auto second = [](const Tensor& x) { return x.narrow(0, 1, 1).narrow(2, 0, 90).contiguous(); };
  Trial one{.q = second(both.q),
            .k = second(both.k),
            .v = second(both.v),
            .options = {},
            .dropout = 0,
            .doutput = second(both.doutput)};
  one.options.mask = both.options.mask;
  const AttentionGradients alone = gradients(one);
  EXPECT_TRUE(bits_equal(second(g.q), alone.q));
  EXPECT_TRUE(bits_equal(second(g.k), alone.k));
  EXPECT_TRUE(bits_equal(second(g.v), alone.v));
  EXPECT_EQ(sum(abs(g.k.select(0, 1).narrow(1, 90, 60))).item(), 0);
}

TEST(Gradient, HiddenKeysAndRowsThatSeeNothingMayHoldAnything) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  for (const Dims& sizes : {Dims{1, 2, 140, 16}, Dims{1, 1, 260, 16}}) {  // heads, and rows in a wave
    Trial s = f32_setup(sizes, sizes);
    const std::int64_t rows = sizes[2];
    Tensor allowed = ones({rows, rows}, Dtype::boolean);
    allowed.slice(1, 100, 110).fill_(0);  // keys 100 ... 109 are seen by nobody
    allowed.slice(0, 30, 35).fill_(0);    // rows 30 ... 34 see nothing
    s.options.mask = Mask::attend(allowed) & Mask::causal();
    s.options.sinks = normal({sizes[1]}, 8);
    const AttentionGradients clean = gradients(s);
    EXPECT_EQ(sum(abs(clean.q.slice(2, 30, 35))).item(), 0);
    EXPECT_EQ(sum(abs(clean.k.slice(2, 100, 110))).item() + sum(abs(clean.v.slice(2, 100, 110))).item(), 0);
    for (const double what : {nan, infinity, -infinity}) {
      Trial dirty = s;
      for (Tensor Trial::* x : {&Trial::k, &Trial::v}) {
        (dirty.*x) = (s.*x).clone();
        (dirty.*x).slice(2, 100, 110).fill_(what);
      }
      for (Tensor Trial::* x : {&Trial::q, &Trial::doutput}) {
        (dirty.*x) = (s.*x).clone();
        (dirty.*x).slice(2, 30, 35).fill_(what);
      }
      expect_same_bits(gradients(dirty), clean);
    }
  }
}

TEST(Gradient, ANanRowReachesOnlyTheKeysItSees) {
  Trial s = f32_setup({1, 1, 100, 8}, {1, 1, 100, 8});
  s.options.mask = Mask::causal();
  s.q.narrow(2, 50, 1).fill_(std::numeric_limits<double>::quiet_NaN());
  const AttentionGradients g = gradients(s);
  for (std::int64_t n = 0; n < 100; ++n) {
    const auto is_nan = [&](const Tensor& x) { return std::isnan(x.narrow(2, n, 1).sum().item()); };
    EXPECT_EQ(is_nan(g.q), n == 50) << n;
    EXPECT_EQ(is_nan(g.k), n <= 50) << n;
    EXPECT_EQ(is_nan(g.v), n <= 50) << n;
  }
}

TEST(Gradient, MemoryStaysFarUnderTheMatrixOfWeights) {
  const Dims sizes{1, 8, 8192, 64};
  const Trial s = f32_setup(sizes, sizes);
  runtime::reset_peak();
  const std::size_t before = runtime::allocated_bytes();
  const AttentionGradients g = gradients(s);
  const std::size_t results = 4 * static_cast<std::size_t>(g.q.numel()) * sizeof(float),
                    matrix = std::size_t{8192} * 8192 * sizeof(float);
  EXPECT_LT(runtime::peak_bytes() - before, results + (std::size_t{8} << 20));
  EXPECT_LT(results + (std::size_t{8} << 20), matrix / 3);  // of one of the 8 heads
}

}  // namespace
}  // namespace attn::testing
