// tests/attention/saved_test.cc: what the tape keeps of an attention call, and that a change of it in place is found
// out.
#include <attn/attention.h>
#include <attn/autograd.h>
#include <attn/ops.h>

#include "attention/truth.h"
#include "support/errors.h"

#include <gtest/gtest.h>

namespace attn::testing {
namespace {

TEST(SavedByAttention, KnowsWhatWasChangedInPlace) {
  const Tensor q = normal({1, 1, 4, 8}, 1).requires_grad_(), k = normal({1, 1, 4, 8}, 2);
  const Tensor x = q * 1, y = attention(x, k, k).output;
  x.fill_(0);
  EXPECT_NE(error_of<ValueError>([&] { backward(y.sum()); }).find("AttentionBackward0"), std::string::npos);
}

TEST(SavedByAttention, WhatIsReadAgainWithoutAGradientOfItsOwn) {
  const Tensor q = normal({1, 1, 4, 8}, 1).requires_grad_(), k = normal({1, 1, 4, 8}, 2);
  const auto ids = [](std::vector<std::int64_t> values) { return tensor<std::int64_t>(values); };
  const Tensor seen = ones({4, 4}, Dtype::boolean), blocked = zeros({4, 4}, Dtype::boolean);
  const Tensor documents = ids({0, 0, 1, 1}), prefix = ids({2}), end = ids({3}), start = ids({1});
  const std::vector<std::pair<Tensor, AttentionOptions>> calls = {
      {seen, {.mask = Mask::attend(seen)}},
      {blocked, {.mask = Mask::causal() | ~Mask::block(blocked)}},
      {documents, {.mask = Mask::causal() & Mask::documents(documents)}},
      {prefix, {.mask = Mask::causal() | Mask::prefix(prefix)}},
      {end, {.key_lengths = end}},
      {start, {.key_start = start}}};
  for (const auto& [read, options] : calls) {
    const Tensor out = attention(q, k, k, options).output;
    read.fill_(0);
    EXPECT_NE(error_of<ValueError>([&] { backward(out.sum()); }).find("AttentionBackward0 saved a tensor"),
              std::string::npos);
  }
  const auto weights_of = [&](const Weights& weights) { return attention(q, k, k, {.weights = weights}); };
  const AttentionResult best = weights_of(Weights::top_k(2));
  best.weight_keys.fill_(0);
  EXPECT_NE(error_of<ValueError>([&] {
              backward((best.weights * best.weights).sum());
            }).find("AttentionBackward0 saved a tensor"),
            std::string::npos);
  // Numbers that are read once: a change has no effect.
  const auto slope = [&](bool change) {
    const Tensor leaf = q.detach().clone().requires_grad_(), rows = ids({1});
    const AttentionResult result = attention(leaf, k, k, {.weights = Weights::rows(rows)});
    if (change) rows.fill_(0);
    backward((result.weights * result.weights).sum());
    return leaf.grad();
  };
  EXPECT_TRUE(same_bits(slope(true), slope(false)));
  const Tensor ints = tensor<int>({4}), copied = attention(q, k, k, {.key_lengths = ints}).output;  // read once, as i64
  ints.fill_(0);
  backward(copied.sum());
}

}  // namespace
}  // namespace attn::testing
