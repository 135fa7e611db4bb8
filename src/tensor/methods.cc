// src/tensor/methods.cc: defines the methods of Tensor for elementwise operations.
#include <attn/ops.h>

namespace attn {

Tensor Tensor::masked_fill(const Tensor& mask, Scalar value) const { return attn::masked_fill(*this, mask, value); }
Tensor Tensor::sqrt() const { return attn::sqrt(*this); }

}  // namespace attn
