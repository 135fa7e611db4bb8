// src/attention/call/cached_kv.h: describes K and V in the pages of a cache, which a call reads in place of tensors.
#pragma once
#include <attn/tensor.h>

#include "kernels/attention/problem.h"

namespace attn {

/// K and V of a cache. The lengths of the sequences are options of the call.
struct CachedKv {
  kernels::KvRows k, v;
  std::int64_t k_head_stride = 0, v_head_stride = 0;  // elements
};

}  // namespace attn
