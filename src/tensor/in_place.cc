// src/tensor/in_place.cc: checks whether a tensor may be changed in place, so that no gradient becomes wrong.
#include <attn/autograd.h>
#include <attn/ops.h>

#include "tensor/build.h"

#include <algorithm>
#include <cstdlib>

namespace attn {
namespace {

/// Throws if x is undefined, or if the tape forbids to change x by `other`.
void check_history(const char* function, const Tensor& x, const Tensor& other) {
  if (!x.defined()) throw ValueError(std::string(function) + ": the tensor is undefined; it has no elements to change");
  if (!grad_enabled()) return;
  const bool wanted = wants_grad(x) || wants_grad(other);
  const Tensor& base = x.impl()->base.defined() ? x.impl()->base : x;
  const TensorImpl& owner = *base.impl();
  if (owner.requires_grad && !owner.node)
    throw ValueError(std::string(function) +
                     ": a leaf that requires a gradient was changed in place; do it while a NoGrad is there, or change "
                     "its detach() or a clone()");
  if (!wanted) return;
  const auto refuse = [&](const char* why) {
    return ValueError(std::string(function) + ": " + why +
                      " cannot be changed in place where a gradient is wanted, shape " + to_string(x.sizes()) +
                      "; change a clone()");
  };
  if (x.impl()->frozen || owner.frozen) throw refuse("a view made under no_grad");
  if (owner.has_leaf_view) throw refuse("memory of which a view was made a leaf by requires_grad_");
  if (x.impl() != &owner && overlaps_itself(base))
    throw refuse("a view of a tensor that has several elements in one place");
}

}  // namespace

bool overlaps_itself(const Tensor& x) {
  if (x.is_contiguous()) return false;
  std::vector<std::pair<std::int64_t, std::int64_t>> steps;  // stride, size
  for (int d = 0; d < x.dim(); ++d) {
    if (x.sizes()[d] == 0) return false;
    if (x.sizes()[d] > 1) steps.emplace_back(std::abs(x.strides()[d]), x.sizes()[d]);
  }
  std::sort(steps.begin(), steps.end());
  std::int64_t reach = 0;  // how far the dims with smaller strides extend
  for (const auto& [stride, size] : steps) {
    if (stride <= reach) return true;
    reach += stride * (size - 1);
  }
  return false;
}

void check_overwrite(const char* function, const Tensor& x) { check_history(function, x, {}); }

void check_in_place(const char* function, const Tensor& x, const Tensor& other) {
  check_history(function, x, other);
  if (overlaps_itself(x))
    throw ValueError(std::string(function) + ": shape " + to_string(x.sizes()) + " with strides " +
                     to_string(x.strides()) + " has several elements in one place; change a clone()");
}

History history_of_overwriting(const char* name, const Tensor& x) {
  return history_of(name, x, wrt(x, [](auto& dy) { return zeros_like(dy); }));
}

}  // namespace attn
