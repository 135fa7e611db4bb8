// tests/attention/linear_attention_test.cc: linear attention with a state against its formula in long double, against
// differences, and its mistakes.
#include <attn/autograd.h>
#include <attn/linear_attention.h>
#include <attn/runtime.h>

#include "attention/linear_attention_inputs.h"
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

TEST(LinearAttention, GatesAndStatesHaveAnyFloatingDtype) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16})
    for (const Dtype other : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16})
      for (const Gate gate : {Gate::head, Gate::channel}) {
        SCOPED_TRACE(std::string(name_of(dtype)) + " beside " + std::string(name_of(other)));
        Given in = given({.batch = 2,
                          .k_heads = 1,
                          .v_heads = 2,
                          .rows = 70,
                          .gate = gate,
                          .delta = true,
                          .state = true,
                          .l2norm = true,
                          .dtype = dtype});
        const Dtype compute = dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32;
        Given same = in;  // the values that `other` holds, in the dtype of the computation
        for (Tensor LinearAttentionOptions::* x :
             {&LinearAttentionOptions::g, &LinearAttentionOptions::beta, &LinearAttentionOptions::initial_state}) {
          in.options.*x = (in.options.*x).to(other);
          same.options.*x = (in.options.*x).to(compute);
        }
        const auto run = [](const Given& x, Dtype flow) {
          LinearAttentionSaved saved;
          LinearAttentionResult r = linear_attention_forward(x.q, x.k, x.v, x.options, saved);
          LinearAttentionGradients g =
              linear_attention_backward(x.q, x.k, x.v, x.options, saved, ones_like(r.output).to(flow), {});
          return std::vector<Tensor>{r.output, r.state, g.q, g.k, g.v, g.g, g.beta, g.initial_state};
        };
        const std::vector<Tensor> found = run(in, other), expected = run(same, dtype);
        for (std::size_t n = 0; n < found.size(); ++n) {
          if (n >= 5) { EXPECT_EQ(found[n].dtype(), other); }
          EXPECT_TRUE(same_bits(found[n], expected[n].to(found[n].dtype()))) << n;
        }
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
