// tests/attention/shared_memory_test.cc: results in memory that the call also reads, and memory given for gradients
// that holds anything.
#include <attn/attention_backward.h>
#include <attn/autograd.h>

#include "attention/calls.h"
#include "support/errors.h"
#include "support/golden.h"

#include <gtest/gtest.h>

#include <cmath>

namespace attn::testing {
namespace {

constexpr std::int64_t heads = 3, keys = 200, dim = 16;  // several strips a head; the output is as wide as the scores
const Dims scores{2, heads, keys, keys};

/// An option made of one tensor, which lies somewhere in the output.
struct Parameter {
  const char* name;
  Tensor values;
  std::function<Tensor(const Tensor& out)> place;
  std::function<AttentionOptions(const Tensor&)> options;
};

std::vector<Parameter> parameters() {
  const auto first = [](const Dims& sizes) {
    return [sizes](const Tensor& out) { return out.reshape({-1}).slice(0, 0, sizes.product()).view(sizes); };
  };
  const auto bias = [](const Tensor& x) { return AttentionOptions{.bias = Bias::dense(x)}; };
  const auto mod = [](auto lookup) {
    return [lookup](const Tensor& x) {
      const ScoreTable table(x);
      return AttentionOptions{
          .score_mod = [&](auto s, auto, auto h, auto i, auto j) { return s + lookup(table, h, i, j); }};
    };
  };
  return {
      {"a bias of each score", normal(scores, 4), first(scores), bias},
      {"a bias of all heads", normal({keys, keys}, 5), [](const Tensor& out) { return out[1][1]; }, bias},
      {"a bias turned", normal(scores, 6), [](const Tensor& out) { return out.transpose(2, 3); }, bias},
      {"sinks", normal({heads}, 7), first({heads}), [](const Tensor& x) { return AttentionOptions{.sinks = x}; }},
      {"slopes", normal({heads}, 8), first({heads}),
       [](const Tensor& x) { return AttentionOptions{.bias = Bias::alibi(x)}; }},
      {"a table of buckets", normal({8, heads}, 9), first({8, heads}),
       [](const Tensor& x) { return AttentionOptions{.bias = Bias::relative(x, true, 16)}; }},
      {"a lookup by head", normal({heads}, 10), first({heads}), mod([](auto& t, auto h, auto, auto) { return t(h); })},
      {"a lookup by pair", normal({keys, keys}, 11), [](const Tensor& out) { return out[0][2]; },
       mod([](auto& t, auto, auto i, auto j) { return t(i, j); })},
      {"the additive score's w", normal({4}, 12), first({4}),
       [](const Tensor& x) {
         return AttentionOptions{.score = Score::additive(normal({4, dim}, 13), normal({4, dim}, 14), x)};
       }},
  };
}

TEST(SharedMemory, OutMayHoldWhatTheCallReads) {
  const Inputs in = inputs({2, heads, keys, dim}, {2, heads, keys, dim}, keys);
  for (const Parameter& parameter : parameters()) {
    const Tensor expected = attention(in.q, in.k, in.v, parameter.options(parameter.values)).output;
    const Tensor out = zeros(scores), inside = parameter.place(out);
    inside.copy_(parameter.values);
    AttentionOptions options = parameter.options(inside);
    options.out = out;
    EXPECT_TRUE(bits_equal(attention(in.q, in.k, in.v, options).output, expected)) << parameter.name;
    EXPECT_TRUE(bits_equal(out, expected)) << parameter.name;
  }
}

TEST(SharedMemory, OutMayHoldAMaskOrLengths) {
  const Inputs in = inputs({2, heads, keys, dim}, {2, heads, keys, dim}, keys);
  const Tensor out = zeros(scores), mask = Tensor::from_blob(out.data(), {keys, keys}, Dtype::boolean),
               own = zeros({keys, keys}, Dtype::boolean);
  for (std::int64_t n = 0; n < own.numel(); ++n) own.data<bool>()[n] = n * 7 % 3 != 0;
  mask.copy_(own);
  const Tensor masked = attention(in.q, in.k, in.v, {.mask = Mask::attend(own)}).output;
  EXPECT_TRUE(bits_equal(attention(in.q, in.k, in.v, {.mask = Mask::attend(mask), .out = out}).output, masked));
  const Tensor lengths = Tensor::from_blob(out.data(), {2}, Dtype::i64), two = tensor<std::int64_t>({150, 70});
  lengths.copy_(two);
  const Tensor shorter = attention(in.q, in.k, in.v, {.key_lengths = two}).output;
  EXPECT_TRUE(bits_equal(attention(in.q, in.k, in.v, {.key_lengths = lengths, .out = out}).output, shorter));
}

/// q is gone when out was written over it, and the gradient of k needs it.
TEST(SharedMemory, AGradientThatNeedsWhatOutReplacedIsRefused) {
  Inputs in = inputs({1, 1, 6, 8}, {1, 1, 6, 8}, 8);
  in.k.requires_grad_();
  const Tensor output = attention(in.q, in.k, in.v, {.out = in.q}).output;
  EXPECT_EQ(error_of<ValueError>([&] { output.sum().backward(); }),
            "backward: AttentionBackward0 saved a tensor of shape [1, 1, 6, 8] at version 1; it was changed in place "
            "and is at version 2; change a clone() instead");
}

/// A call's backward pass, its gradients in memory that `give` chooses.
struct Pass {
  Inputs in;
  AttentionOptions options = {};
  AttentionSaved saved = {};
  Tensor grad_output = {};
  AttentionGradients run(const std::function<void(Pass&, AttentionBackwardOptions&)>& give = {}) {
    saved = {};
    attention_forward(in.q, in.k, in.v, options, saved);
    if (!grad_output.defined()) grad_output = normal(saved.output.sizes(), 20, in.q.dtype());
    AttentionBackwardOptions wanted{.grad_output = grad_output};
    if (give) give(*this, wanted);
    return attention_backward(in.q, in.k, in.v, options, saved, wanted);
  }
};

void expect_same(const AttentionGradients& ours, const AttentionGradients& expected, const std::string& what) {
  EXPECT_TRUE(bits_equal(ours.q, expected.q)) << what;
  EXPECT_TRUE(bits_equal(ours.k, expected.k)) << what;
  EXPECT_TRUE(bits_equal(ours.v, expected.v)) << what;
}

TEST(SharedMemory, GradientsMayReplaceWhatTheyComeFrom) {
  using W = AttentionBackwardOptions;
  const std::pair<const char*, std::function<void(Pass&, W&)>> gifts[] = {
      {"q", [](Pass& p, W& w) { w.grad_q = p.in.q; }},
      {"k", [](Pass& p, W& w) { w.grad_k = p.in.k; }},
      {"v", [](Pass& p, W& w) { w.grad_v = p.in.v; }},
      {"all", [](Pass& p, W& w) { w.grad_q = p.in.q, w.grad_k = p.in.k, w.grad_v = p.in.v; }},
      {"turned about", [](Pass& p, W& w) { w.grad_q = p.in.v, w.grad_k = p.in.q, w.grad_v = p.in.k; }},
      {"grad_output", [](Pass& p, W& w) { w.grad_v = w.grad_output = p.grad_output = p.grad_output.clone(); }},
      {"output", [](Pass& p, W& w) { w.grad_k = p.saved.output; }},
  };
  for (const Dtype dtype : {Dtype::f32, Dtype::f64})
    for (const auto& [name, give] : gifts) {
      const auto fresh = [&] {
        return Pass{.in = inputs({2, heads, keys, dim}, {2, heads, keys, dim}, dim, dtype),
                    .options = {.mask = Mask::causal()}};
      };
      expect_same(fresh().run(give), fresh().run(), name);
    }
}

TEST(SharedMemory, GivenMemoryIsClearedOfWhatItHeld) {
  const auto filled = [](const Tensor& x) {
    return full(x.sizes(), NAN, x.dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32);
  };
  const auto give = [&](Pass& p, AttentionBackwardOptions& w) {
    w.grad_q = filled(p.in.q), w.grad_k = filled(p.in.k), w.grad_v = filled(p.in.v);
  };
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16}) {
    Pass documents{.in = inputs({1, 2, 6, 8}, {1, 2, 9, 8}, 8, dtype),
                   .options = {.mask = Mask::documents(tensor<std::int64_t>({0, 0, 1, 1, 2, 2}),
                                                       tensor<std::int64_t>({0, 0, 1, 1, 5, 5, 5, 2, 2}))}};
    expect_same(documents.run(give), documents.run(), "keys of a document without rows");
    Pass no_heads{.in = inputs({1, 0, 6, 8}, {1, 2, 9, 8}, 8, dtype)};
    expect_same(no_heads.run(give), no_heads.run(), "no heads");
  }
}

TEST(SharedMemory, WhatCannotBeIsRefused) {
  Pass pass{.in = inputs({1, 1, 6, 8}, {1, 1, 6, 8}, 8)};
  const Tensor one = zeros({1, 1, 6, 8});
  EXPECT_EQ(
      error_of<ValueError>([&] { pass.run([&](Pass&, AttentionBackwardOptions& w) { w.grad_q = w.grad_v = one; }); }),
      "attention_backward: grad_v lies in the memory of another gradient; each needs its own");
  const Tensor both = zeros({90});
  EXPECT_EQ(error_of<ValueError>([&] {
              pass.run([&](Pass&, AttentionBackwardOptions& w) {
                w.grad_q = both.slice(0, 0, 48).reshape({1, 1, 6, 8});
                w.grad_k = both.slice(0, 40, 88).reshape({1, 1, 6, 8});
              });
            }),
            "attention_backward: grad_k lies in the memory of another gradient; each needs its own");
  const Tensor q = randn({1, 1, 6, 8}), weight = randn({8, 8});
  AttentionSaved over_q{.output = {}, .max = q.reshape({48}).slice(0, 0, 6).reshape({1, 1, 6}), .sum = {}};
  // what is read is a projection of q
  EXPECT_EQ(error_of<ValueError>([&] { attention_forward(q, q, q, {.score = Score::general(weight)}, over_q); }),
            "attention_forward: max shares memory with an operand or another result; it needs memory of its own");
  EXPECT_EQ(error_of<ValueError>([&] {
              pass.run([](Pass&, AttentionBackwardOptions& w) { w.grad_k = zeros({8}).expand({1, 1, 6, 8}); });
            }),
            "attention_backward: shape [1, 1, 6, 8] with strides [0, 0, 0, 1] has several elements in one place; "
            "change a clone()");
  AttentionSaved saved{.output = {}, .max = zeros({1, 1, 6}), .sum = {}};
  saved.sum = saved.max;
  EXPECT_EQ(error_of<ValueError>([&] { attention_forward(pass.in.q, pass.in.k, pass.in.v, {}, saved); }),
            "attention: sum shares memory with an operand or another result; it needs memory of its own");
}

}  // namespace
}  // namespace attn::testing
