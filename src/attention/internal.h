// src/attention/internal.h: computes attention with options that only this library uses: dropout by torch's random
// stream, another function name in errors, saved state, a cache.
#pragma once
#include <attn/attention_backward.h>

#include "attention/call/cached_kv.h"

namespace attn {

struct CallOptions {
  const char* function = "attention";  // the name in error texts
  // The probability of dropout drawn from torch's random stream, 0 to 1: two words per weight, row-major over [B, Hq,
  // Tq, Tk].
  double dropout_p = 0;
  Generator* generator = nullptr;  // null: the global generator, under its lock
  bool logsumexp = true;
  AttentionSaved* saved = nullptr;  // filled for a backward pass; the call is then not recorded
  // state that an earlier call saved: the call is recorded for autograd, and nothing is computed
  const AttentionSaved* resumed = nullptr;
  bool rows_at_end = false;  // ScoreShape explains it
  // the pages in which a cache stores K and V; the tensors k and v then hold only sizes and dtype
  const CachedKv* cached = nullptr;
  std::int64_t first_head = 0;  // the number of head 0 for dropout, if the call is some heads of a larger one
};

/// Computes attention(). With dropout, the output and the weights are those after dropout, and the logsumexp is that
/// before it.
AttentionResult attention_call(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                               const CallOptions& call_options);
/// Computes attention_backward() for a call with that first head.
AttentionGradients attention_backward_call(const Tensor& q, const Tensor& k, const Tensor& v,
                                           const AttentionOptions& options, const AttentionSaved& saved,
                                           const AttentionBackwardOptions& wanted, std::int64_t first_head);

}  // namespace attn
