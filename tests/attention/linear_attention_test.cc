// tests/attention/linear_attention_test.cc: linear attention with a state against its formula in long double, against
// differences, and its bits over targets, threads, batches and splits after any row.
#include <attn/autograd.h>
#include <attn/linear_attention.h>
#include <attn/runtime.h>

#include "attention/recurrent/call.h"
#include "attention/truth.h"
#include "kernels/recurrent/target.h"
#include "kernels/reference.h"
#include "runtime/cpu.h"
#include "support/errors.h"
#include "verify/compare.h"
#include "verify/inputs.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace attn::testing {
namespace {

enum class Gate { none, head, channel };

struct Shape {
  std::int64_t batch = 1, k_heads = 1, v_heads = 1, rows = 1, dim = 8, value_dim = 8;
  Gate gate = Gate::none;
  bool delta = false, state = false, l2norm = false;
  Dtype dtype = Dtype::f32;
  double decay = 0.2;  // g is minus this times a number from 0 to 1
};

struct Given {
  Tensor q, k, v;
  LinearAttentionOptions options;
  std::vector<Tensor> all() const {
    std::vector<Tensor> tensors{q, k, v};
    for (const Tensor& x : {options.g, options.beta, options.initial_state})
      if (x.defined()) tensors.push_back(x);
    return tensors;
  }
  Given rows(std::int64_t first, std::int64_t count) const {
    Given part{q.narrow(2, first, count), k.narrow(2, first, count), v.narrow(2, first, count), options};
    if (options.g.defined()) part.options.g = options.g.narrow(2, first, count);
    if (options.beta.defined()) part.options.beta = options.beta.narrow(2, first, count);
    return part;
  }
  Given item(std::int64_t b) const {
    Given part{q.narrow(0, b, 1), k.narrow(0, b, 1), v.narrow(0, b, 1), options};
    for (Tensor LinearAttentionOptions::* x :
         {&LinearAttentionOptions::g, &LinearAttentionOptions::beta, &LinearAttentionOptions::initial_state})
      if ((options.*x).defined()) part.options.*x = (options.*x).narrow(0, b, 1);
    return part;
  }
};

Given given(const Shape& s, std::uint64_t seed = 1) {
  const Dims keys{s.batch, s.k_heads, s.rows, s.dim}, rows{s.batch, s.v_heads, s.rows};
  Given in{normal(keys, seed, s.dtype),
           normal(keys, seed + 1, s.dtype),
           normal({s.batch, s.v_heads, s.rows, s.value_dim}, seed + 2, s.dtype),
           {}};
  in.options.l2norm = s.l2norm;
  if (s.delta && !s.l2norm) in.k = in.k / std::sqrt(static_cast<double>(s.dim));
  Generator random(seed + 3);
  if (s.gate == Gate::head) in.options.g = (rand(rows, random) * -s.decay).to(s.dtype);
  if (s.gate == Gate::channel)
    in.options.g = (rand({s.batch, s.v_heads, s.rows, s.dim}, random) * -s.decay).to(s.dtype);
  if (s.delta) in.options.beta = rand(rows, random).to(s.dtype);
  if (s.state)
    in.options.initial_state =
        normal({s.batch, s.v_heads, s.dim, s.value_dim}, seed + 4, s.dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32);
  return in;
}

/// The formula of the header, in long double or in the naive order of float.
template <typename T>
std::pair<std::vector<double>, std::vector<double>> by_formula(const Shape& s, const Given& in) {
  const auto values = [](const Tensor& x) { return x.defined() ? x.to_vector() : std::vector<double>(); };
  const std::vector<double> q = values(in.q), k = values(in.k), v = values(in.v), g = values(in.options.g),
                            beta = values(in.options.beta), initial = values(in.options.initial_state);
  std::vector<double> output, states;
  const std::int64_t group = s.v_heads / s.k_heads;
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t h = 0; h < s.v_heads; ++h) {
      std::vector<T> state(static_cast<std::size_t>(s.dim * s.value_dim));
      const std::int64_t head = b * s.v_heads + h, key_head = b * s.k_heads + h / group;
      const auto at = [&](std::int64_t d, std::int64_t e) -> T& {
        return state[static_cast<std::size_t>(d * s.value_dim + e)];
      };
      if (!initial.empty())
        for (std::size_t n = 0; n < state.size(); ++n)
          state[n] = static_cast<T>(initial[static_cast<std::size_t>(head) * state.size() + n]);
      for (std::int64_t t = 0; t < s.rows; ++t) {
        const auto key = [&](const std::vector<double>& x, std::int64_t d) {
          return static_cast<T>(x[static_cast<std::size_t>((key_head * s.rows + t) * s.dim + d)]);
        };
        T norm_q = 1, norm_k = 1;
        if (s.l2norm) {
          norm_q = norm_k = static_cast<T>(1e-6L);
          for (std::int64_t d = 0; d < s.dim; ++d) {
            norm_q += key(q, d) * key(q, d);
            norm_k += key(k, d) * key(k, d);
          }
          norm_q = std::sqrt(norm_q);
          norm_k = std::sqrt(norm_k);
        }
        const std::size_t row = static_cast<std::size_t>(head * s.rows + t);
        for (std::int64_t d = 0; d < s.dim && s.gate != Gate::none; ++d)
          for (std::int64_t e = 0; e < s.value_dim; ++e)
            at(d, e) *= std::exp(static_cast<T>(
                s.gate == Gate::head ? g[row]
                                     : g[row * static_cast<std::size_t>(s.dim) + static_cast<std::size_t>(d)]));
        for (std::int64_t e = 0; e < s.value_dim; ++e) {
          T u = static_cast<T>(v[row * static_cast<std::size_t>(s.value_dim) + static_cast<std::size_t>(e)]);
          if (s.delta) {
            for (std::int64_t d = 0; d < s.dim; ++d) u -= at(d, e) * (key(k, d) / norm_k);
            u *= static_cast<T>(beta[row]);
          }
          T sum = 0;
          for (std::int64_t d = 0; d < s.dim; ++d) {
            at(d, e) += key(k, d) / norm_k * u;
            sum += at(d, e) * (key(q, d) / norm_q / std::sqrt(static_cast<T>(s.dim)));
          }
          output.push_back(static_cast<double>(sum));
        }
      }
      for (const T x : state) states.push_back(static_cast<double>(x));
    }
  return {output, states};
}

double farthest(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (std::size_t n = 0; n < a.size(); ++n) most = std::max(most, std::abs(a[n] - b[n]));
  return most;
}
double largest(const std::vector<double>& a) { return farthest(a, std::vector<double>(a.size())); }

std::vector<Shape> shapes() {
  std::vector<Shape> all;
  for (const Gate gate : {Gate::none, Gate::head, Gate::channel})
    for (const bool delta : {false, true}) {
      all.push_back({.batch = 2,
                     .k_heads = 2,
                     .v_heads = 4,
                     .rows = 70,
                     .dim = 24,
                     .value_dim = 40,
                     .gate = gate,
                     .delta = delta,
                     .state = delta,
                     .l2norm = delta});
      all.push_back({.rows = 131, .dim = 5, .value_dim = 3, .gate = gate, .delta = delta, .state = true});
      all.push_back(
          {.v_heads = 3, .rows = 64, .dim = 33, .value_dim = 129, .gate = gate, .delta = delta, .dtype = Dtype::f64});
      all.push_back({.k_heads = 2, .v_heads = 2, .rows = 1, .dim = 16, .value_dim = 16, .gate = gate, .delta = delta});
    }
  return all;
}

TEST(LinearAttention, IsItsFormula) {
  for (const Shape& s : shapes()) {
    const Given in = given(s);
    const auto [output, state] = by_formula<long double>(s, in);
    const LinearAttentionResult ours = linear_attention(in.q, in.k, in.v, in.options);
    const auto [plain, plain_state] = s.dtype == Dtype::f64 ? by_formula<double>(s, in) : by_formula<float>(s, in);
    const double eps = s.dtype == Dtype::f64 ? 0x1p-52 : 0x1p-23;
    EXPECT_LE(farthest(ours.output.to_vector(), output), 2 * farthest(plain, output) + 4 * eps * largest(output));
    EXPECT_LE(farthest(ours.state.to_vector(), state), 2 * farthest(plain_state, state) + 4 * eps * largest(state));
  }
}

TEST(LinearAttention, GradientsAreDifferences) {
  for (const Gate gate : {Gate::none, Gate::head, Gate::channel})
    for (const bool delta : {false, true})
      for (const bool strong : {false, true}) {
        const Shape s{.batch = 2,
                      .k_heads = 1,
                      .v_heads = 2,
                      .rows = strong ? 5 : 67,
                      .dim = 3,
                      .value_dim = 2,
                      .gate = gate,
                      .delta = delta,
                      .state = true,
                      .l2norm = delta,
                      .dtype = Dtype::f64,
                      .decay = strong ? 8 : 0.2};
        const Given in = given(s);
        std::vector<Tensor> inputs = in.all();
        for (Tensor& x : inputs) x.requires_grad_();
        const auto call = [&](const std::vector<Tensor>& x, bool state) {
          LinearAttentionOptions options = in.options;
          std::size_t n = 3;
          if (options.g.defined()) options.g = x[n++];
          if (options.beta.defined()) options.beta = x[n++];
          options.initial_state = x[n];
          const LinearAttentionResult r = linear_attention(x[0], x[1], x[2], options);
          return state ? r.state : cat({r.output.reshape({-1}), r.state.reshape({-1})});
        };
        for (const bool state : {false, true})
          EXPECT_EQ(check_gradients([&](const std::vector<Tensor>& x) { return call(x, state); }, inputs), "")
              << static_cast<int>(gate) << delta << strong;
      }
}

/// Every result of a call, forward and backward, by some kernels.
std::vector<Tensor> everything(const Given& in, const kernels::RecurrentKernels& kernels) {
  const RecurrentCall call = check_recurrent("test", in.q, in.k, in.v, in.options);
  const Tensor states = kept_states(call);
  const LinearAttentionResult r = run_recurrent(call, kernels, states);
  const LinearAttentionGradients g = run_recurrent_backward(
      call, kernels, states, normal(in.v.sizes(), 8, in.v.dtype()), normal(r.state.sizes(), 9, r.state.dtype()));
  std::vector<Tensor> all{r.output, r.state, states};
  for (const Tensor& x : {g.q, g.k, g.v, g.g, g.beta, g.initial_state})
    if (x.defined()) all.push_back(x);
  return all;
}
void expect_same(const std::vector<Tensor>& ours, const std::vector<Tensor>& expected, const std::string& what) {
  ASSERT_EQ(ours.size(), expected.size());
  for (std::size_t n = 0; n < ours.size(); ++n)
    EXPECT_TRUE(same_bits(ours[n], expected[n])) << what << ", result " << n;
}

TEST(LinearAttention, EveryTargetAndThreadCountHasTheBitsOfTheSpecification) {
  const int before = num_threads();
  for (const Shape& s : shapes()) {
    const Given in = given(s);
    const std::vector<Tensor> expected = everything(in, *kernels::reference_generic()->recurrent);
    if (kernels::reference_fma() != nullptr)
      expect_same(everything(in, *kernels::reference_fma()->recurrent), expected, "fma");
    for (const std::string& name : runtime::targets())
      if (const auto* target = kernels::recurrent_target(name.c_str()); target != nullptr)
        expect_same(everything(in, *target), expected, name);
    for (const int threads : {1, 3, 16}) {
      set_num_threads(threads);
      expect_same(everything(in, kernels::recurrent_kernels()), expected, std::to_string(threads));
    }
    set_num_threads(before);
  }
}

/// Inputs of integers, the same on every machine.
Given fixed(const Shape& s) {
  const Dims keys{s.batch, s.k_heads, s.rows, s.dim}, rows{s.batch, s.v_heads, s.rows};
  Dims channels = rows;
  channels.push_back(s.dim);
  const auto make = [&](const Dims& sizes, std::uint64_t seed, double width) {
    return cases::integers(sizes, s.dtype, seed, width);
  };
  Given in{make(keys, 1, 1), make(keys, 2, 0.25), make({s.batch, s.v_heads, s.rows, s.value_dim}, 3, 1), {}};
  in.options.l2norm = s.l2norm;
  if (s.gate != Gate::none) in.options.g = make(s.gate == Gate::head ? rows : channels, 4, 0.5) - 0.5;
  if (s.delta) in.options.beta = make(rows, 5, 0.5) + 0.5;
  if (s.state) in.options.initial_state = make({s.batch, s.v_heads, s.dim, s.value_dim}, 6, 1);
  return in;
}

struct FixedCase {
  Shape shape;
  const char* digest;
};
const FixedCase fixed_cases[] = {
#include "cases/recurrent.inc"
};

TEST(LinearAttention, CasesHaveTheDigestsOfTheirTable) {
  for (const FixedCase& c : fixed_cases) {
    const Given in = fixed(c.shape);
    const RecurrentCall call = check_recurrent("test", in.q, in.k, in.v, in.options);
    const Tensor states = kept_states(call);
    const LinearAttentionResult r = run_recurrent(call, kernels::recurrent_kernels(), states);
    const LinearAttentionGradients g = run_recurrent_backward(call, kernels::recurrent_kernels(), states,
                                                              cases::integers(in.v.sizes(), c.shape.dtype, 7, 1),
                                                              cases::integers(r.state.sizes(), c.shape.dtype, 8, 1));
    cases::Results results{{"output", r.output}, {"state", r.state}, {"states", states}};
    for (const Tensor& x : {g.q, g.k, g.v, g.g, g.beta, g.initial_state})
      if (x.defined()) results.push_back({"gradient", x});
    cases::Digest digest;
    digest.add(results);
    EXPECT_EQ(digest.text(), c.digest) << &c - fixed_cases;
  }
}

TEST(LinearAttention, GoesOnFromAStateAfterAnyRow) {
  for (const Gate gate : {Gate::none, Gate::head, Gate::channel})
    for (const bool delta : {false, true}) {
      const Shape s{.batch = 2,
                    .k_heads = 1,
                    .v_heads = 2,
                    .rows = 70,
                    .dim = 20,
                    .value_dim = 33,
                    .gate = gate,
                    .delta = delta,
                    .l2norm = true};
      const Given in = given(s);
      const LinearAttentionResult whole = linear_attention(in.q, in.k, in.v, in.options);
      for (std::int64_t split = 0; split <= s.rows; ++split) {
        Given first = in.rows(0, split), second = in.rows(split, s.rows - split);
        const LinearAttentionResult one = linear_attention(first.q, first.k, first.v, first.options);
        second.options.initial_state = one.state;
        const LinearAttentionResult two = linear_attention(second.q, second.k, second.v, second.options);
        ASSERT_TRUE(same_bits(cat({one.output, two.output}, 2), whole.output)) << split;
        ASSERT_TRUE(same_bits(two.state, whole.state)) << split;
      }
      Tensor state;  // row by row: decode
      for (std::int64_t t = 0; t < s.rows; ++t) {
        Given row = in.rows(t, 1);
        row.options.initial_state = state;
        const LinearAttentionResult r = linear_attention(row.q, row.k, row.v, row.options);
        state = r.state;
        ASSERT_TRUE(same_bits(r.output, whole.output.narrow(2, t, 1))) << t;
      }
      ASSERT_TRUE(same_bits(state, whole.state));
    }
}

TEST(LinearAttention, BatchPaddingPackingAndLayoutChangeNoBit) {
  const Shape s{.batch = 3,
                .k_heads = 2,
                .v_heads = 4,
                .rows = 80,
                .dim = 16,
                .value_dim = 24,
                .gate = Gate::head,
                .delta = true,
                .state = true};
  const Given in = given(s);
  Given padded = in;
  const std::vector<std::int64_t> lengths{80, 13, 0};
  padded.options.lengths = tensor(lengths);
  const auto run = [](const Given& x) { return everything(x, kernels::recurrent_kernels()); };
  const std::vector<Tensor> batch = run(in), ends = run(padded);
  std::vector<Tensor> packed[6];
  std::vector<std::int64_t> starts{0};
  for (std::int64_t b = 0; b < s.batch; ++b) {
    const Given alone = in.item(b);
    const LinearAttentionResult one = linear_attention(alone.q, alone.k, alone.v, alone.options);
    EXPECT_TRUE(same_bits(batch[0].narrow(0, b, 1), one.output));
    EXPECT_TRUE(same_bits(batch[1].narrow(0, b, 1), one.state));
    const std::int64_t rows = lengths[static_cast<std::size_t>(b)];
    const Given cut = alone.rows(0, rows);
    const LinearAttentionResult part = linear_attention(cut.q, cut.k, cut.v, cut.options);
    EXPECT_TRUE(same_bits(ends[0].narrow(0, b, 1).narrow(2, 0, rows), part.output));
    EXPECT_TRUE(same_bits(ends[1].narrow(0, b, 1), part.state));
    const Tensor behind = ends[0].narrow(0, b, 1).narrow(2, rows, s.rows - rows);
    EXPECT_TRUE(same_bits(behind, zeros(behind.sizes())));
    for (std::size_t n = 0; n < 6; ++n) {
      const Tensor* const all[] = {
          &cut.q, &cut.k, &cut.v, &cut.options.g, &cut.options.beta, &cut.options.initial_state};
      packed[n].push_back(*all[n]);
    }
    starts.push_back(starts.back() + rows);
  }
  Given joined{cat(packed[0], 2), cat(packed[1], 2), cat(packed[2], 2), {}};
  joined.options.g = cat(packed[3], 2);
  joined.options.beta = cat(packed[4], 2);
  joined.options.initial_state = cat(packed[5], 0);
  joined.options.cu_seqlens = tensor(starts);
  const LinearAttentionResult together = linear_attention(joined.q, joined.k, joined.v, joined.options);
  EXPECT_TRUE(same_bits(together.state, ends[1]));
  for (std::size_t b = 0; b < 3; ++b)
    EXPECT_TRUE(same_bits(together.output.narrow(2, starts[b], lengths[b]),
                          ends[0].narrow(0, static_cast<std::int64_t>(b), 1).narrow(2, 0, lengths[b])));
  Given turned = in;
  for (Tensor* x : {&turned.q, &turned.k, &turned.v, &turned.options.g, &turned.options.beta})
    *x = x->transpose(1, 2).clone().transpose(1, 2);
  expect_same(run(turned), batch, "turned");
  EXPECT_TRUE(linear_attention(turned.q, turned.k, turned.v, turned.options).output.transpose(1, 2).is_contiguous());
}

TEST(LinearAttention, HalfFloatsAreRoundedOnce) {
  for (const Dtype dtype : {Dtype::bf16, Dtype::f16}) {
    const Shape s{.k_heads = 1,
                  .v_heads = 2,
                  .rows = 67,
                  .dim = 16,
                  .value_dim = 16,
                  .gate = Gate::head,
                  .delta = true,
                  .dtype = dtype};
    const Given in = given(s);
    Given wide = in;
    for (Tensor* x : {&wide.q, &wide.k, &wide.v, &wide.options.g, &wide.options.beta}) *x = x->to(Dtype::f32);
    const LinearAttentionResult half = linear_attention(in.q, in.k, in.v, in.options),
                                full = linear_attention(wide.q, wide.k, wide.v, wide.options);
    EXPECT_TRUE(same_bits(half.output, full.output.to(dtype)));
    EXPECT_TRUE(same_bits(half.state, full.state));
  }
}

TEST(LinearAttention, OneDecayAHead) {
  const Shape s{.k_heads = 2, .v_heads = 2, .rows = 9, .dim = 4, .value_dim = 4, .dtype = Dtype::f64};
  Given in = given(s);
  Tensor g = tensor(std::vector<double>{-0.1, -0.5}).to(Dtype::f64).requires_grad_();
  in.options.g = g.reshape({1, 2, 1}).expand({1, 2, 9});
  const Tensor expanded = linear_attention(in.q, in.k, in.v, in.options).output;
  const Tensor by_expanded = grad(expanded.sum(), g);
  in.options.g = g;
  const Tensor short_form = linear_attention(in.q, in.k, in.v, in.options).output;
  EXPECT_TRUE(same_bits(short_form, expanded));
  EXPECT_TRUE(allclose(grad(short_form.sum(), g), by_expanded));
}

TEST(LinearAttention, MistakesGetOneLine) {
  const Tensor q = zeros({1, 2, 3, 4}), v = zeros({1, 4, 3, 5});
  const auto shape = [&](const Tensor& a, const Tensor& b, const Tensor& c, const LinearAttentionOptions& o = {}) {
    return error_of<ShapeError>([&] { linear_attention(a, b, c, o); });
  };
  EXPECT_EQ(shape(q[0], q, v), "linear_attention: q has shape [2, 3, 4]; it must be [B, H, T, D]");
  EXPECT_EQ(shape(q, zeros({1, 2, 3, 5}), v), "linear_attention: k has shape [1, 2, 3, 5]; it must be [1, 2, 3, 4]");
  EXPECT_EQ(shape(q, q, zeros({1, 3, 3, 5})),
            "linear_attention: v has 3 heads and k 2; those of v must be a multiple of those of k");
  EXPECT_EQ(shape(q, q, v, {.beta = zeros({1, 2, 3})}),
            "linear_attention: beta has shape [1, 2, 3]; it must be [1, 4, 3]");
  EXPECT_EQ(shape(q, q, v, {.initial_state = zeros({1, 4, 5, 4})}),
            "linear_attention: initial_state has shape [1, 4, 5, 4]; it must be [1, 4, 4, 5]");
  EXPECT_EQ(error_of<ValueError>([&] { linear_attention(q, q, v, {.lengths = tensor(std::vector<std::int64_t>{4})}); }),
            "linear_attention: lengths[0] is 4; it must be from 0 to 3, the number of rows");
  EXPECT_EQ(error_of<DtypeError>([&] { linear_attention(q, q, v.to(Dtype::f64)); }),
            "linear_attention: v is f64; it must be f32 as q");
}

}  // namespace
}  // namespace attn::testing
