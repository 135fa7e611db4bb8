// src/tensor/leaf_by_leaf.h: a backward pass that gives each leaf its gradient as soon as it is complete.
#pragma once
#include <attn/tensor.h>

#include <functional>

namespace attn {

/// Adds the gradient of each leaf to its `grad()` with the bits of `backward`, when the last operation that uses the
/// leaf has run, and then calls `whole` with the leaf. It also calls `whole` with leaves that no gradient reaches.
/// After an error some leaves have changed. Tensors made by the pass have no history.
void backward_leaf_by_leaf(const Tensor& output, const Tensor& grad, const std::function<void(const Tensor&)>& whole);

}  // namespace attn
