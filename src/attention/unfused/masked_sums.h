// src/attention/unfused/masked_sums.h: products of matrices that leave masked pairs out, with gradients of every order.
#pragma once
#include <attn/tensor.h>

namespace attn {

// A number of a masked pair takes no part, even if it is NaN or inf: 0 times NaN would be NaN. `masked`: bool,
// [B, H, M, N], true for masked pairs. f32 or f64; all tensors have rank 4 and the same B and H.

/// Returns the sums over d of a[.., i, d] b[.., j, d], 0 for masked pairs: a [.., M, D], b [.., N, D] -> [.., M, N].
Tensor visible_products(const Tensor& a, const Tensor& b, const Tensor& masked);

/// Returns the sums of w[.., i, j] x[.., j, d] over the visible j: w [.., M, N], x [.., N, D] -> [.., M, D].
Tensor visible_sums(const Tensor& w, const Tensor& x, const Tensor& masked);

/// Returns whether no element of x is NaN or infinite.
bool all_finite(const Tensor& x);

}  // namespace attn
