// src/tensor/overlap.h: whether tensors, or elements of one, share memory.
#pragma once
#include <attn/tensor.h>

namespace attn {

/// Whether the memory of the two overlaps without being the same view element for element.
bool overlaps(const Tensor& a, const Tensor& b);

/// Whether two elements of x may lie in one place: expanded dims, or strides of the caller's own that do not rule it
/// out.
bool overlaps_itself(const Tensor& x);

}  // namespace attn
