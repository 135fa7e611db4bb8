// src/attention/call/cached_kv.h: K and V in the pages of a cache, as a call takes them in place of tensors.
#pragma once
#include <attn/tensor.h>

#include "kernels/attention/problem.h"

namespace attn {

/// Their lengths are options of the call.
struct CachedKv {
  kernels::KvRows k, v;
  std::int64_t k_head_stride = 0, v_head_stride = 0;  // elements
};

}  // namespace attn
