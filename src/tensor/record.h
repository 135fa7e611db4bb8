// src/tensor/record.h: the hook by which every operation tells where its result came from.
#pragma once
#include "tensor/impl.h"

#include <initializer_list>

namespace attn {

/// Gradient of the inputs from the gradient of the result; an undefined tensor stands for "none".
using Vjp = std::function<std::vector<Tensor>(const Tensor& grad)>;

/// One operation on the way to a result that wants a gradient.
struct Node {
  const char* name;  // torch's: "MmBackward0"; print shows it
  std::vector<Tensor> inputs;
  Vjp vjp;
};

/// Notes that `result` was made by `name` from `inputs`. Costs one look at each input when none requires a gradient.
/// Without a `vjp` the result still says that it requires a gradient.
Tensor record(const char* name, Tensor result, std::initializer_list<Tensor> inputs, Vjp vjp = {});
Tensor record(const char* name, Tensor result, const std::vector<Tensor>& inputs, Vjp vjp = {});

}  // namespace attn
