// tests/attention/latent_attention_test.cc: latent attention against its formula in long double, its gradients against
// differences, and its mistakes.
#include <attn/autograd.h>

#include "attention/latent_attention_inputs.h"
#include "support/errors.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace attn::testing {
namespace {

/// The formula of the header in T: the truth in long double, or the naive way, which rounds each product to the dtype
/// as a program of tensor operations does. The last row of q is at the last key.
template <typename T>
std::vector<double> by_formula(const LatentShape& s, const LatentOperands& o, LatentForm form, bool rounds) {
  const auto values = [](const Tensor& x) { return x.to_vector(); };
  const auto q_nope = values(o.q_nope), q_rope = values(o.q_rope), latent = values(o.latent), k_rope = values(o.k_rope),
             w_uk = values(o.w_uk), w_uv = values(o.w_uv);
  const auto rounded = [&](T x) {
    if (!rounds || s.dtype == Dtype::f64) return x;
    return static_cast<T>(tensor<double>({static_cast<double>(x)}).to(s.dtype).to_vector()[0]);
  };
  const auto at = [](const std::vector<double>& x, std::int64_t row, std::int64_t columns, std::int64_t column) {
    return static_cast<T>(x[static_cast<std::size_t>(row * columns + column)]);
  };
  std::vector<double> output;
  const T scale = 1 / std::sqrt(static_cast<T>(s.dim()));
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t h = 0; h < s.heads; ++h)
      for (std::int64_t i = 0; i < s.q_rows; ++i) {
        const std::int64_t row = (b * s.heads + h) * s.q_rows + i, keys = s.k_rows - s.q_rows + i + 1;
        std::vector<T> absorbed(static_cast<std::size_t>(s.latent)), p(static_cast<std::size_t>(keys)),
            mean(static_cast<std::size_t>(s.latent));
        for (std::int64_t c = 0; c < s.latent; ++c) {
          T sum = 0;
          for (std::int64_t d = 0; d < s.nope; ++d)
            sum += at(q_nope, row, s.nope, d) * at(w_uk, h * s.nope + d, s.latent, c);
          absorbed[static_cast<std::size_t>(c)] = rounded(sum);
        }
        T largest = -std::numeric_limits<T>::infinity(), total = 0;
        for (std::int64_t j = 0; j < keys; ++j) {
          const std::int64_t key = b * s.k_rows + j;
          T score = 0;
          if (form == LatentForm::absorbed) {
            for (std::int64_t c = 0; c < s.latent; ++c)
              score += absorbed[static_cast<std::size_t>(c)] * at(latent, key, s.latent, c);
          } else {
            for (std::int64_t d = 0; d < s.nope; ++d) {
              T k = 0;
              for (std::int64_t c = 0; c < s.latent; ++c)
                k += at(w_uk, h * s.nope + d, s.latent, c) * at(latent, key, s.latent, c);
              score += at(q_nope, row, s.nope, d) * rounded(k);
            }
          }
          for (std::int64_t d = 0; d < s.rope; ++d) score += at(q_rope, row, s.rope, d) * at(k_rope, key, s.rope, d);
          p[static_cast<std::size_t>(j)] = rounded(score * scale);
          largest = std::max(largest, p[static_cast<std::size_t>(j)]);
        }
        for (T& x : p) total += x = std::exp(x - largest);
        for (T& x : p) x = rounded(x / total);
        if (form == LatentForm::absorbed)
          for (std::int64_t c = 0; c < s.latent; ++c) {
            T sum = 0;
            for (std::int64_t j = 0; j < keys; ++j)
              sum += p[static_cast<std::size_t>(j)] * at(latent, b * s.k_rows + j, s.latent, c);
            mean[static_cast<std::size_t>(c)] = rounded(sum);
          }
        for (std::int64_t e = 0; e < s.value; ++e) {
          T sum = 0;
          if (form == LatentForm::absorbed)
            for (std::int64_t c = 0; c < s.latent; ++c)
              sum += at(w_uv, h * s.value + e, s.latent, c) * mean[static_cast<std::size_t>(c)];
          else
            for (std::int64_t j = 0; j < keys; ++j) {
              T v = 0;
              for (std::int64_t c = 0; c < s.latent; ++c)
                v += at(w_uv, h * s.value + e, s.latent, c) * at(latent, b * s.k_rows + j, s.latent, c);
              sum += p[static_cast<std::size_t>(j)] * rounded(v);
            }
          output.push_back(static_cast<double>(rounded(sum)));
        }
      }
  return output;
}

double eps_of(Dtype dtype) {
  return dtype == Dtype::f64 ? 0x1p-52 : dtype == Dtype::f32 ? 0x1p-23 : dtype == Dtype::f16 ? 0x1p-10 : 0x1p-7;
}

const AttentionOptions causal = {.mask = Mask::causal(Align::bottom_right)};

/// Both forms are within the error rule, so they are close to each other too.
TEST(LatentAttention, IsItsFormula) {
  const LatentShape shapes[] = {
      {.batch = 2, .heads = 3, .q_rows = 4, .k_rows = 90},
      {.heads = 2, .q_rows = 1, .k_rows = 300, .nope = 24, .rope = 10, .latent = 48, .value = 20},
      {.heads = 12, .q_rows = 9, .k_rows = 9, .nope = 7, .rope = 2, .latent = 19, .value = 5}};
  for (LatentShape s : shapes)
    for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16}) {
      s.dtype = dtype;
      const LatentOperands o = latent_operands(s);
      const std::vector<double> truth = by_formula<long double>(s, o, LatentForm::absorbed, false);
      for (const LatentForm form : both_forms) {
        SCOPED_TRACE(std::string(name_of(dtype)) + (form == LatentForm::absorbed ? " absorbed" : " expanded"));
        const std::vector<double> naive =
            dtype == Dtype::f64 ? by_formula<double>(s, o, form, true) : by_formula<float>(s, o, form, true);
        const AttentionResult result = latent_attention(o, causal, form);
        EXPECT_EQ(result.output.sizes(), (Dims{s.batch, s.heads, s.q_rows, s.value}));
        expect_within(result.output, naive, truth, eps_of(dtype));
      }
    }
}

TEST(LatentAttention, GradientsAreDifferences) {
  const LatentShape s{.batch = 2,
                      .heads = 2,
                      .q_rows = 3,
                      .k_rows = 5,
                      .nope = 3,
                      .rope = 2,
                      .latent = 4,
                      .value = 2,
                      .dtype = Dtype::f64};
  std::vector<Tensor> inputs = all_of(latent_operands(s));
  for (Tensor& x : inputs) x.requires_grad_();
  for (const LatentForm form : both_forms) {
    const auto output = [&](const std::vector<Tensor>& x) {
      const AttentionResult r = latent_attention(operands_of(x), causal, form);
      return cat({r.output.flatten(), r.logsumexp.flatten()});
    };
    EXPECT_EQ(check_gradients(output, inputs), "");
    EXPECT_EQ(check_gradients(output, inputs, {.second = true}), "");
  }
}

/// The gradients of both forms at head dims of a layer, D unlike Dv, within the error rule of each other.
TEST(LatentAttention, GradientsOfBothFormsAgree) {
  const LatentShape s{.heads = 2, .q_rows = 70, .k_rows = 70, .nope = 128, .rope = 64, .latent = 96, .value = 128};
  const auto gradients = [](const LatentOperands& o, LatentForm form) {
    std::vector<Tensor> inputs = all_of(o);
    for (Tensor& x : inputs) x = x.detach().clone().requires_grad_();
    const Tensor output = latent_attention(operands_of(inputs), causal, form).output;
    Generator generator(9);
    return grad({(output * randn(output.sizes(), generator).to(output.dtype())).sum()}, inputs);
  };
  const LatentOperands o = latent_operands(s);
  LatentOperands wide = o;
  for (Tensor LatentOperands::* x : {&LatentOperands::q_nope, &LatentOperands::q_rope, &LatentOperands::latent,
                                     &LatentOperands::k_rope, &LatentOperands::w_uk, &LatentOperands::w_uv})
    wide.*x = (o.*x).to(Dtype::f64);
  const std::vector<Tensor> truth = gradients(wide, LatentForm::expanded),
                            expanded = gradients(o, LatentForm::expanded),
                            absorbed = gradients(o, LatentForm::absorbed);
  for (std::size_t n = 0; n < truth.size(); ++n) {
    const std::vector<double> exactly = truth[n].to_vector();
    expect_within(absorbed[n], expanded[n].to_vector(), exactly, 0x1p-23);
    expect_within(expanded[n], absorbed[n].to_vector(), exactly, 0x1p-23);
  }
}

TEST(LatentAttention, OptionsAreThoseOfAttention) {
  const LatentShape s{.heads = 4, .q_rows = 3, .k_rows = 40, .dtype = Dtype::f64};
  const LatentOperands o = latent_operands(s);
  AttentionOptions options = causal;
  options.scale = 0.3;
  options.softcap = 2;
  options.sinks = normal({4}, 5, Dtype::f64);
  options.bias = Bias::alibi(Bias::alibi_slopes(4), Align::bottom_right);
  options.weights = Weights::full;
  const AttentionResult expanded = latent_attention(o, options),
                        absorbed = latent_attention(o, options, LatentForm::absorbed);
  EXPECT_EQ(expanded.weights.sizes(), (Dims{1, 4, 3, 40}));
  EXPECT_LT(max(abs(expanded.weights - absorbed.weights)).item(), 1e-14);
  EXPECT_LT(max(abs(expanded.output - absorbed.output)).item(), 1e-14);
  EXPECT_LT(max(abs(expanded.logsumexp - absorbed.logsumexp)).item(), 1e-14);
}

TEST(LatentAttention, MistakesAreOneLineEach) {
  const LatentOperands o = latent_operands({});
  const auto refused = [&](auto change) {
    LatentOperands given = o;
    change(given);
    return error_of<Error>([&] { latent_attention(given); });
  };
  EXPECT_EQ(refused([](auto& x) { x.latent = {}; }), "latent_attention: latent is undefined");
  EXPECT_EQ(refused([](auto& x) { x.q_nope = x.q_nope.select(0, 0); }),
            "latent_attention: q_nope has shape [4, 5, 16]; it must be [B, H, Tq, Dn], here [?, ?, ?, ?]");
  EXPECT_EQ(refused([](auto& x) { x.q_rope = x.q_rope.slice(2, 0, 4); }),
            "latent_attention: q_rope has shape [1, 4, 4, 8]; it must be [B, H, Tq, Dr], here [1, 4, 5, ?]");
  EXPECT_EQ(refused([](auto& x) { x.w_uk = x.w_uk.slice(1, 0, 15); }),
            "latent_attention: w_uk has shape [4, 15, 32]; it must be [H, Dn, C], here [4, 16, ?]");
  EXPECT_EQ(refused([](auto& x) { x.w_uv = x.w_uv.slice(2, 0, 31); }),
            "latent_attention: w_uv has shape [4, 16, 31]; it must be [H, Dv, C], here [4, ?, 32]");
  EXPECT_EQ(refused([](auto& x) { x.latent = x.latent.slice(2, 0, 31); }),
            "latent_attention: latent has shape [1, 70, 31]; it must be [B, Tk, C], here [1, ?, 32]");
  EXPECT_EQ(refused([](auto& x) { x.k_rope = x.k_rope.slice(1, 1); }),
            "latent_attention: k_rope has shape [1, 69, 8]; it must be [B, Tk, Dr], here [1, 70, 8]");
  EXPECT_EQ(refused([](auto& x) { x.w_uv = x.w_uv.to(Dtype::f64); }),
            "latent_attention: w_uv is f64; it must be f32 as q_nope");
  EXPECT_EQ(refused([](auto& x) { x.q_nope = x.q_nope.to(Dtype::i64); }),
            "latent_attention: q_nope is i64; it must be f32, f64, bf16 or f16");
  EXPECT_EQ(error_of<ValueError>([&] { latent_attention(o, {.score = Score::dot()}); }),
            "latent_attention: a score is given; latent attention has the scaled dot product, with a scale");
  EXPECT_EQ(error_of<ValueError>([&] { latent_attention(o, {.out = zeros({1, 4, 5, 16})}); }),
            "latent_attention: out is given; the output of latent attention is always new");
  EXPECT_EQ(error_of<ValueError>([&] { latent_attention(o, {}, static_cast<LatentForm>(7)); }),
            "latent_attention: form is 7; the enumeration has no such value");
}

}  // namespace
}  // namespace attn::testing
