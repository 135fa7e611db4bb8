// src/tensor/record.cc: who made a tensor, kept only where a gradient is wanted; the rules of in-place changes.
#include "tensor/record.h"

#include "tensor/build.h"

#include <algorithm>

namespace attn {
namespace {

template <typename Inputs>
Tensor record_from(const char* name, Tensor result, const Inputs& inputs, Vjp vjp) {
  const bool wanted = std::any_of(inputs.begin(), inputs.end(), [](const Tensor& x) { return x.defined() && x.impl()->requires_grad; });
  if (wanted && is_floating(result.dtype())) {
    result.impl()->requires_grad = true;
    result.impl()->node = std::make_shared<Node>(Node{name, std::vector<Tensor>(inputs.begin(), inputs.end()), std::move(vjp)});
  }
  return result;
}

/// Whether `x` is, or is a view of, a leaf that requires a gradient.
bool shows_leaf(const Tensor& x) {
  Tensor at = x;
  while (at.defined() && at.requires_grad() && at.impl()->storage == x.impl()->storage) {
    if (!at.impl()->node) return true;
    at = at.impl()->node->inputs.front();
  }
  return false;
}

}  // namespace

Tensor record(const char* name, Tensor result, std::initializer_list<Tensor> inputs, Vjp vjp) {
  return record_from(name, std::move(result), inputs, std::move(vjp));
}

Tensor record(const char* name, Tensor result, const std::vector<Tensor>& inputs, Vjp vjp) {
  return record_from(name, std::move(result), inputs, std::move(vjp));
}

void check_in_place(const char* function, const Tensor& x) {
  if (shows_leaf(x))
    throw ValueError(std::string(function) + ": a leaf that requires a gradient was changed in place; change its detach() or a clone()");
  x.bump_version();
}

void record_in_place(const char* name, const Tensor& x, const Tensor& other) {
  const bool wanted = x.requires_grad() || (other.defined() && other.requires_grad());
  if (!wanted || !is_floating(x.dtype())) return;
  const Tensor before(std::make_shared<TensorImpl>(*x.impl()));  // the handle changes its history: what it was becomes an input
  record(name, x, {before, other});
}

bool Tensor::requires_grad() const { return impl_ && impl_->requires_grad; }

Tensor& Tensor::requires_grad_(bool value) {
  if (value && !is_floating(dtype()))
    throw DtypeError("requires_grad_: the tensor is " + std::string(name_of(dtype())) + "; only floating types have gradients");
  if (!value && impl_->node)
    throw ValueError("requires_grad_: the tensor is the result of an operation; use detach() for one that requires no gradient");
  impl_->requires_grad = value;
  return *this;
}

}  // namespace attn
