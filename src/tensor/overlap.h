// src/tensor/overlap.h: checks whether tensors, or elements of one tensor, share memory.
#pragma once
#include <attn/tensor.h>

namespace attn {

/// Returns whether the memory ranges of a and b overlap although the two are not the same view.
bool overlaps(const Tensor& a, const Tensor& b);

/// Returns whether two elements of x may share an address: dims are expanded, or strides that the caller gave do not
/// exclude it.
bool overlaps_itself(const Tensor& x);

}  // namespace attn
