// src/tensor/methods.cc: the method forms of elementwise operations, and those that work in place.
#include <attn/ops.h>

#include "tensor/build.h"
#include "tensor/promote.h"

namespace attn {
namespace {

/// `change(old, into)` computes the new values of x, which must fit its shape and the kind of its dtype.
template <typename F>
const Tensor& in_place(const char* function, const char* name, const Tensor& x, const Tensor& other, Dtype common, F&& change) {
  if (other.defined() && !(broadcast_shapes(function, x.sizes(), other.sizes()) == x.sizes()))
    throw ShapeError(std::string(function) + ": other has shape " + to_string(other.sizes()) + "; it must broadcast to " +
                     to_string(x.sizes()));
  const bool fits = is_floating(x.dtype()) || (!is_floating(common) && (x.dtype() != Dtype::boolean || common == Dtype::boolean));
  if (!fits)
    throw DtypeError(std::string(function) + ": the result is " + std::string(name_of(common)) + "; it cannot be kept in " +
                     std::string(name_of(x.dtype())));
  check_in_place(function, x);
  copy_values(x, change(x.detach()));
  record_in_place(name, x, other);
  return x;
}

}  // namespace

Tensor Tensor::masked_fill(const Tensor& mask, Scalar value) const { return attn::masked_fill(*this, mask, value); }
Tensor Tensor::sqrt() const { return attn::sqrt(*this); }

const Tensor& Tensor::add_(const Tensor& other, Scalar alpha) const {
  return in_place("add_", "AddBackward0", *this, other, result_type(*this, other), [&](const Tensor& x) {
    const Tensor y = other.detach();
    return add(x, alpha.to_double() == 1 ? y : mul(y, alpha));
  });
}

const Tensor& Tensor::mul_(const Tensor& other) const {
  return in_place("mul_", "MulBackward0", *this, other, result_type(*this, other), [&](const Tensor& x) { return mul(x, other.detach()); });
}

const Tensor& Tensor::mul_(Scalar value) const {
  return in_place("mul_", "MulBackward0", *this, {}, result_type(*this, value), [&](const Tensor& x) { return mul(x, value); });
}

}  // namespace attn
