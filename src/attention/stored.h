// src/attention/stored.h: keys and values that lie in pages, as a call takes them in place of tensors.
#pragma once
#include <attn/tensor.h>

#include "kernels/attention/problem.h"

#include <functional>
#include <utility>

namespace attn {

/// Their lengths are options of the call.
struct StoredRows {
  kernels::KeyRows k, v;
  std::int64_t k_head_stride = 0, v_head_stride = 0;  // elements
  /// The same as tensors [B, Hk, Tk, D] and [B, Hv, Tk, Dv] of f32.
  std::function<std::pair<Tensor, Tensor>()> in_f32 = {};
};

}  // namespace attn
