// tests/tensor/undefined_test.cc: an argument that was left out is named.
#include <attn/ops.h>

#include "support/errors.h"

#include <gtest/gtest.h>

#include <functional>

namespace attn {
namespace {

TEST(Undefined, TheArgumentIsNamed) {
  const Tensor none, x = ones({2, 2}), ids = zeros({2}, Dtype::i64);
  const std::vector<std::pair<const char*, std::function<void()>>> calls = {
      {"matmul: a is undefined", [&] { matmul(none, x); }},
      {"matmul: b is undefined", [&] { matmul(x, none); }},
      {"bmm: b is undefined", [&] { bmm(x, none); }},
      {"linear: x is undefined", [&] { linear(none, x); }},
      {"linear: weight is undefined", [&] { linear(x, none); }},
      {"layer_norm: x is undefined", [&] { layer_norm(none, {2}); }},
      {"rms_norm: x is undefined", [&] { rms_norm(none, {2}); }},
      {"embedding: index is undefined", [&] { embedding(none, x); }},
      {"embedding: weight is undefined", [&] { embedding(ids, none); }},
      {"cross_entropy: logits is undefined", [&] { cross_entropy(none, ids); }},
      {"cross_entropy: target is undefined", [&] { cross_entropy(x, none); }},
      {"cat: tensor 1 is undefined", [&] { cat({x, none}, 0); }},
      {"stack: tensor 0 is undefined", [&] { stack({none, x}, 0); }},
      {"where: condition is undefined", [&] { where(none, x, x); }},
      {"where: b is undefined", [&] { where(gt(x, 0), x, none); }},
      {"einsum: operand 1 is undefined", [&] { einsum("ij,jk->ik", {x, none}); }},
  };
  for (const auto& [text, call] : calls) EXPECT_EQ(testing::error_of<ValueError>(call), text);
}

}  // namespace
}  // namespace attn
