// src/attention/internal.h: computes attention with internal options: dropout by torch's random stream, and another
// function name in errors.
#pragma once
#include <attn/attention_backward.h>

#include "attention/call/cached_kv.h"

namespace attn {

struct CallOptions {
  const char* function = "attention";  // the name in error texts
  // In [0, 1]. Drawn from torch's stream: two words per weight, row-major over [B, Hq, Tq, Tk].
  double dropout_p = 0;
  Generator* generator = nullptr;  // null: the global generator, under its lock
  bool logsumexp = true;
  AttentionSaved* saved = nullptr;  // filled for a backward pass; nothing is recorded
  // saved by an earlier call, which is now recorded without computing anything
  const AttentionSaved* resumed = nullptr;
  bool rows_at_end = false;  // rows are at the end of their sequence; top_left is an error
  // where the rows of k and v are stored; k and v then hold only sizes and dtype
  const CachedKv* cached = nullptr;
};

/// Computes attention(). With dropout, output and weights are those after dropout, logsumexp that before.
AttentionResult attention_call(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                               const CallOptions& call_options);

/// Returns the same bias terms with f32 values.
Bias in_f32(const Bias& bias);

}  // namespace attn
