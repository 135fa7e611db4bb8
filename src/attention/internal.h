// src/attention/internal.h: attention with what the public form does not show: torch's dropout, another name in errors.
#pragma once
#include <attn/attention_backward.h>

#include "attention/call/cached_kv.h"

namespace attn {

struct CallOptions {
  const char* function = "attention";  // errors name it
  // in [0, 1]; drawn from torch's stream, two words a weight, row-major over [B, Hq, Tq, Tk]
  double dropout_p = 0;
  Generator* generator = nullptr;  // null: the global one, under its lock
  bool logsumexp = true;
  AttentionSaved* saved = nullptr;          // filled for a backward pass; nothing is recorded
  const AttentionSaved* resumed = nullptr;  // left by such a call: it is recorded now, nothing is computed
  bool rows_at_end = false;                 // top_left is an error
  const CachedKv* cached = nullptr;         // where the rows of k and v lie, which then tell sizes and dtype alone
};

/// As attention(); with dropout the output and the weights are those after it, logsumexp the one before.
AttentionResult attention_call(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                               const CallOptions& call_options);

/// The same terms over f32 values.
Bias in_f32(const Bias& bias);

}  // namespace attn
