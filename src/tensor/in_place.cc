// src/tensor/in_place.cc: what may be changed in place, and what may not because a gradient would be wrong.
#include <attn/autograd.h>
#include <attn/ops.h>

#include "tensor/build.h"

namespace attn {
namespace {

/// Whether `x` is, or is a view of, a leaf that requires a gradient.
bool shows_leaf(const Tensor& x) {
  if (!x.requires_grad()) return false;
  const Node* node = x.impl()->node.get();
  for (bool is_view = x.impl()->is_view; node != nullptr && is_view; node = node->edges.front().node.get()) {
    if (node->edges.front().leaf.defined()) return true;
    is_view = node->edges.front().is_view;
  }
  return node == nullptr;
}

}  // namespace

void check_in_place(const char* function, const Tensor& x, const Tensor& other) {
  if (grad_enabled() && shows_leaf(x))
    throw ValueError(std::string(function) + ": a leaf that requires a gradient was changed in place; change its detach() or a clone()");
  if (grad_enabled() && x.impl()->is_view && (wants_grad(x) || wants_grad(other)))
    throw ValueError(std::string(function) + ": a view of shape " + to_string(x.sizes()) +
                     " was changed in place where a gradient is wanted; change the whole tensor, or put the parts together with cat or stack");
  x.bump_version();
}

void record_overwritten(const char* name, const Tensor& x) {
  record(name, x, wrt(x, [](auto& dy) { return zeros_like(dy); }));
}

}  // namespace attn
