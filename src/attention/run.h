// src/attention/run.h: a planned call cut into tasks and computed.
#pragma once
#include "attention/collect.h"
#include "attention/dropout.h"
#include "attention/plan.h"

namespace attn {

/// Where results go; pointers that are null are not wanted. Compute type, contiguous, but for `out`.
struct Results {
  void* out = nullptr;
  std::int64_t out_stride[3] = {0, 0, 0};
  void* logsumexp = nullptr;     // [B, Hq, Tq]
  void* max = nullptr;           // [B, Hq, Tq]: for the backward pass
  void* sum = nullptr;
  const Collected* weights = nullptr;
};

/// One task is a strip of rows of a head, or of all heads where their weights are averaged.
void run_attention(const Call& call, const AttentionKernel& kernel, const DropoutStrips& dropout, const Results& results);

}  // namespace attn
