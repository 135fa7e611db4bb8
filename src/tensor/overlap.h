// src/tensor/overlap.h: checks whether tensors, or elements of one tensor, share memory.
#pragma once
#include <attn/tensor.h>

namespace attn {

/// Returns whether the memory of the two overlaps although they are not the same view.
bool overlaps(const Tensor& a, const Tensor& b);

/// Returns whether two elements of x may share an address: x has expanded dims, or the caller's strides do not rule it
/// out.
bool overlaps_itself(const Tensor& x);

}  // namespace attn
