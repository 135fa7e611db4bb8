// tests/attention/saved_state_test.cc: forward and backward pass for a caller's own tape have the bits of the library's
// tape; their errors.
#include <attn/attention_backward.h>
#include <attn/autograd.h>
#include <attn/ops.h>

#include "attention/truth.h"
#include "support/errors.h"
#include "support/golden.h"

#include <gtest/gtest.h>

namespace attn::testing {
namespace {

struct Operands {
  Dtype dtype = Dtype::f32;
  Dtype computed = dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32;
  Dtype bias_dtype = computed;
  Tensor q = normal({2, 4, 70, 12}, 1, dtype), k = normal({2, 2, 90, 12}, 2, dtype),
         v = normal({2, 1, 90, 6}, 3, dtype);
  Tensor sinks = normal({4}, 4, computed), bias = normal({4, 1, 90}, 5, bias_dtype), slopes = normal({4}, 6, computed);
  Tensor grad_output = normal({2, 4, 70, 6}, 7, dtype), grad_logsumexp = normal({2, 4, 70}, 8, computed);
  double dropout_p = 0;

  AttentionOptions options() const {
    AttentionOptions options{.mask = Mask::causal(Align::bottom_right) & Mask::window(40, 40, Align::bottom_right),
                             .bias = Bias::dense(bias) + Bias::alibi(slopes, Align::bottom_right)};
    options.softcap = 3;
    options.sinks = sinks;
    options.dropout_p = dropout_p;
    options.dropout_seed = 77;
    return options;
  }
};

Tensor in_f64(const Tensor& x) { return x.to(Dtype::f64); }

/// The bits of the tape; 16-bit types, whose output was rounded before: the error rule of docs/numerics.md section 7
/// beside the tape's.
void expect_like(const Tensor& ours, const Tensor& tape, const Tensor& truth, Dtype dtype, const char* name) {
  if (dtype == Dtype::f32 || dtype == Dtype::f64) {
    EXPECT_TRUE(bits_equal(ours, tape)) << name;
    return;
  }
  const double eps = dtype == Dtype::bf16 ? 0x1p-8 : 0x1p-11, bound = 4 * eps * max(abs(truth)).item();
  const std::vector<double> x = ours.to_vector(), t = tape.to_vector(), exact = truth.to_vector();
  for (std::size_t n = 0; n < x.size(); ++n)
    ASSERT_LE(std::abs(x[n] - exact[n]), 2 * std::abs(t[n] - exact[n]) + bound) << name << " " << n;
}

/// The gradients of q, k, v, sinks, bias and slopes by the library's tape.
std::vector<Tensor> tape(const Operands& o, AttentionResult& result) {
  Operands leaves = o;
  for (Tensor* x : {&leaves.q, &leaves.k, &leaves.v, &leaves.sinks, &leaves.bias, &leaves.slopes})
    *x = x->detach().requires_grad_();
  result = attention(leaves.q, leaves.k, leaves.v, leaves.options());
  backward({result.output, result.logsumexp}, {o.grad_output, o.grad_logsumexp});
  return {leaves.q.grad(),     leaves.k.grad(),    leaves.v.grad(),
          leaves.sinks.grad(), leaves.bias.grad(), leaves.slopes.grad()};
}

std::vector<Tensor> truth(Operands o) {
  for (Tensor* x : {&o.q, &o.k, &o.v, &o.sinks, &o.bias, &o.slopes, &o.grad_output, &o.grad_logsumexp}) *x = in_f64(*x);
  AttentionResult result;
  return tape(o, result);
}

void expect_bits_of_the_tape(const Operands& o) {
  AttentionResult taped;
  const std::vector<Tensor> expected = tape(o, taped), exact = truth(o);
  Operands leaves = o;
  leaves.q.requires_grad_();
  AttentionSaved saved;
  const AttentionResult r = attention_forward(leaves.q, leaves.k, leaves.v, leaves.options(), saved);
  EXPECT_FALSE(r.output.requires_grad()) << "nothing is recorded";
  EXPECT_TRUE(bits_equal(r.output, taped.output.detach()));
  EXPECT_TRUE(bits_equal(r.logsumexp, taped.logsumexp.detach()));
  AttentionBackwardOptions wanted;
  wanted.grad_output = o.grad_output;
  wanted.grad_logsumexp = o.grad_logsumexp;
  const AttentionGradients g = attention_backward(o.q, o.k, o.v, o.options(), saved, wanted);
  const Tensor ours[] = {g.q, g.k, g.v, g.sinks, g.bias.at(0), g.bias.at(1)};
  const char* const names[] = {"q", "k", "v", "sinks", "bias", "slopes"};
  for (std::size_t n = 0; n < std::size(ours); ++n) expect_like(ours[n], expected[n], exact[n], o.dtype, names[n]);
}

TEST(OwnTape, HasTheBitsOfTheLibrarysTape) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16})
    for (const double p : {0.0, 0.3}) {
      SCOPED_TRACE(std::string(name_of(dtype)) + " dropout " + std::to_string(p));
      expect_bits_of_the_tape({.dtype = dtype, .dropout_p = p});
      expect_bits_of_the_tape({.dtype = dtype, .bias_dtype = dtype, .dropout_p = p});
    }
}

/// Every gradient that attention() has, in the bits of the tape, 16-bit types too.
TEST(OwnTape, ACallIsRecordedFromWhatItLeft) {
  const auto gradients = [](Score::Kind kind, Dtype dtype, const Weights& weights, bool resumed) {
    const auto leaf = [](const Tensor& x) { return x.detach().requires_grad_(); };
    const Operands o{.dtype = dtype, .dropout_p = 0.3};
    const Tensor q = leaf(o.q), k = leaf(o.k), v = leaf(o.v), sinks = leaf(o.sinks),
                 w_q = leaf(normal({5, 12}, 9, dtype)), w = leaf(normal({5}, 10, dtype));
    AttentionOptions options = o.options();
    options.sinks = sinks;
    options.weights = weights;
    if (kind == Score::Kind::additive) options.score = Score::additive(w_q, w_q, w);
    if (kind == Score::Kind::general) options.score = Score::general(leaf(normal({12, 12}, 11, dtype)));
    AttentionResult r;
    if (resumed) {
      AttentionSaved saved;
      saved.exact = true;
      const AttentionResult forward = attention_forward(q, k, v, options, saved);
      r = attention_recorded(q, k, v, options, saved);
      EXPECT_TRUE(bits_equal(r.output.detach(), forward.output));
    } else {
      r = attention(q, k, v, options);
    }
    std::vector<Tensor> outputs{r.output, r.logsumexp}, flows{o.grad_output, o.grad_logsumexp};
    if (r.weights.defined())
      outputs.push_back(r.weights), flows.push_back(normal(r.weights.sizes(), 12, r.weights.dtype()));
    return grad(outputs,
                {q, k, v, sinks, kind == Score::Kind::general ? options.score.w : q,
                 kind == Score::Kind::additive ? w_q : q, kind == Score::Kind::additive ? w : q},
                {.grad_outputs = flows});
  };
  for (const Score::Kind kind : {Score::Kind::scaled_dot, Score::Kind::general, Score::Kind::additive})
    for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16})
      for (const Weights& weights : {Weights(), Weights(Weights::full), Weights(Weights::head_average),
                                     Weights(Weights::column_sums), Weights::top_k(3)}) {
        SCOPED_TRACE(std::string(name_of(dtype)) + " score " + std::to_string(static_cast<int>(kind)) + " weights " +
                     std::to_string(weights.kind));
        const std::vector<Tensor> expected = gradients(kind, dtype, weights, false),
                                  ours = gradients(kind, dtype, weights, true);
        for (std::size_t n = 0; n < expected.size(); ++n) EXPECT_TRUE(bits_equal(ours[n], expected[n])) << n;
      }
}

TEST(OwnTape, WhatIsRecordedMustFitTheCall) {
  const Operands o;
  AttentionOptions options = o.options();
  options.weights = Weights::top_k(3);
  AttentionSaved saved;
  saved.exact = true;
  attention_forward(o.q, o.k, o.v, options, saved);
  AttentionSaved wrong = saved;
  wrong.weight_keys = {};
  EXPECT_EQ(error_of<Error>([&] { attention_recorded(o.q, o.k, o.v, options, wrong); }),
            "attention_backward: saved.weight_keys is undefined; it is needed");
  wrong = saved;
  wrong.max = zeros({2, 4, 69});
  EXPECT_EQ(error_of<Error>([&] { attention_recorded(o.q, o.k, o.v, options, wrong); }),
            "attention_backward: saved.max has shape [2, 4, 69]; it must be [2, 4, 70]");
}

/// s * gain[h] + table[j % 8] + table[i % 8], whose table is looked up twice.
TEST(OwnTape, AScoreModGivesTheGradientsOfItsTensors) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16}) {
    SCOPED_TRACE(name_of(dtype));
    const Operands o{.dtype = dtype, .dropout_p = 0.3};
    const auto gradients = [&o](bool with_tape, Dtype in) {
      const auto leaf = [&](const Tensor& x) {
        return with_tape ? x.to(in).detach().requires_grad_() : x.to(in).detach();
      };
      const Tensor q = leaf(o.q), k = leaf(o.k), v = leaf(o.v), gain = leaf(normal({4}, 11)),
                   table = leaf(normal({8}, 12));
      AttentionOptions options{.mask = Mask::causal(Align::bottom_right)};
      options.score_mod =
          ScoreExpression::parse("s * gain[h] + table[j % 8] + table[i % 8]", {{"gain", gain}, {"table", table}})
              .aligned(Align::bottom_right);
      options.dropout_p = o.dropout_p;
      options.dropout_seed = 77;
      if (with_tape) {
        backward({attention(q, k, v, options).output}, {o.grad_output.to(in)});
        return std::vector<Tensor>{q.grad(), k.grad(), v.grad(), gain.grad(), table.grad()};
      }
      AttentionSaved saved;
      attention_forward(q, k, v, options, saved);
      AttentionBackwardOptions wanted;
      wanted.grad_output = o.grad_output.to(in);
      const AttentionGradients g = attention_backward(q, k, v, options, saved, wanted);
      wanted.score_mod = false;
      for (const auto& [tensor, gradient] : attention_backward(q, k, v, options, saved, wanted).score_mod)
        EXPECT_FALSE(gradient.defined());
      std::vector<Tensor> all{g.q, g.k, g.v};
      for (const Tensor& x : {gain, table})
        for (const auto& [tensor, gradient] : g.score_mod)
          if (tensor.impl() == x.impl()) all.push_back(gradient);
      return all;
    };
    const std::vector<Tensor> ours = gradients(false, dtype), expected = gradients(true, dtype),
                              exact = gradients(true, Dtype::f64);
    const char* const names[] = {"q", "k", "v", "gain", "table"};
    ASSERT_EQ(ours.size(), std::size(names));
    for (std::size_t n = 0; n < ours.size(); ++n) expect_like(ours[n], expected[n], exact[n], dtype, names[n]);
  }
}

TEST(OwnTape, ADrawnSeedIsKept) {
  const Operands o{.dropout_p = 0.5};
  AttentionOptions options = o.options();
  options.dropout_seed.reset();
  AttentionSaved saved;
  const AttentionResult r = attention_forward(o.q, o.k, o.v, options, saved);
  options.dropout_seed = saved.dropout_seed;
  EXPECT_TRUE(bits_equal(attention(o.q, o.k, o.v, options).output, r.output));
}

TEST(OwnTape, UsesTheCallersMemory) {
  const Operands o;
  AttentionSaved saved{.output = {}, .max = empty({2, 4, 70}), .sum = empty({2, 4, 70})};
  const void* const max = saved.max.data();
  const void* const sum = saved.sum.data();
  AttentionOptions options = o.options();
  options.out = empty({2, 70, 4, 6}).transpose(1, 2);  // heads inside
  attention_forward(o.q, o.k, o.v, options, saved);
  EXPECT_EQ(saved.output.data(), options.out.data());
  EXPECT_EQ(saved.max.data(), max);
  EXPECT_EQ(saved.sum.data(), sum);
  AttentionBackwardOptions wanted;
  wanted.grad_output = o.grad_output;
  const AttentionGradients apart = attention_backward(o.q, o.k, o.v, options, saved, wanted);
  const Tensor joined = empty({2, 70, 4 * 12}), heads = joined.view({2, 70, 4, 12}).transpose(1, 2);
  wanted.grad_q = heads;
  const AttentionGradients g = attention_backward(o.q, o.k, o.v, options, saved, wanted);
  EXPECT_EQ(g.q.data(), joined.data());
  EXPECT_TRUE(bits_equal(heads, apart.q));
}

TEST(OwnTape, OnlyWhatIsWanted) {
  const Operands o;
  AttentionSaved saved;
  attention_forward(o.q, o.k, o.v, o.options(), saved);
  AttentionBackwardOptions wanted;
  wanted.grad_output = o.grad_output;
  wanted.k = wanted.v = wanted.sinks = wanted.bias = false;
  const AttentionGradients g = attention_backward(o.q, o.k, o.v, o.options(), saved, wanted);
  EXPECT_TRUE(g.q.defined());
  EXPECT_FALSE(g.k.defined() || g.v.defined() || g.bias.at(0).defined() || g.bias.at(1).defined());
}

TEST(OwnTape, ErrorsSayWhatIsNeeded) {
  const Operands o;
  AttentionSaved saved;
  attention_forward(o.q, o.k, o.v, o.options(), saved);
  AttentionBackwardOptions wanted;
  const auto text = [&](const AttentionOptions& options) {
    return error_of<Error>([&] { attention_backward(o.q, o.k, o.v, options, saved, wanted); });
  };
  EXPECT_EQ(text(o.options()), "attention_backward: grad_output is undefined; it is needed");
  wanted.grad_output = o.grad_output.slice(2, 1);
  EXPECT_EQ(text(o.options()), "attention_backward: grad_output has shape [2, 4, 69, 6]; it must be [2, 4, 70, 6]");
  wanted.grad_output = o.grad_output;
  wanted.grad_k = empty({2, 2, 90, 12}, Dtype::f64);
  EXPECT_EQ(text(o.options()), "attention_backward: grad_k is f64; it must be f32");
  wanted.grad_k = empty({2, 2, 12, 90}).transpose(2, 3);
  EXPECT_EQ(text(o.options()),
            "attention_backward: grad_k has strides [2160, 1080, 1, 90]; its last dim must be contiguous");
  wanted.grad_k = {};
  AttentionSaved wrong = saved;
  saved.max = saved.max.slice(2, 1);
  EXPECT_EQ(text(o.options()), "attention_backward: saved.max has shape [2, 4, 69]; it must be [2, 4, 70]");
  saved = {};
  EXPECT_EQ(text(o.options()), "attention_backward: saved.output is undefined; it is needed");
  saved = wrong;
  AttentionOptions general{.score = Score::general(normal({12, 12}, 9))};
  EXPECT_EQ(text(general),
            "attention_backward: the score is general, additive or a score_callback; it must be the (scaled) dot "
            "product, or a score_mod of it");

  wrong = {.output = {}, .max = empty({70, 4, 2}).transpose(0, 2), .sum = {}};
  EXPECT_EQ(error_of<Error>([&] { attention_forward(o.q, o.k, o.v, o.options(), wrong); }),
            "attention: max has strides [1, 2, 8]; it must be contiguous");
  wrong = {.output = {}, .max = {}, .sum = empty({2, 4, 69})};
  EXPECT_EQ(error_of<Error>([&] { attention_forward(o.q, o.k, o.v, o.options(), wrong); }),
            "attention: sum has shape [2, 4, 69]; it must be [2, 4, 70]");
  wrong.sum = empty({2, 4, 70}, Dtype::f64);
  EXPECT_EQ(error_of<Error>([&] { attention_forward(o.q, o.k, o.v, o.options(), wrong); }),
            "attention: sum is f64; it must be f32");
}

}  // namespace
}  // namespace attn::testing
