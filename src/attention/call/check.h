// src/attention/call/check.h: checks a call before anything is computed or written. Errors about `out` and the returned
// weights come later.
#pragma once
#include "attention/call/cached_kv.h"
#include "attention/call/call.h"

namespace attn {

/// Checks the operands and the options, projects q and k if the score does so, and describes the problem. With
/// `cached`, k and v hold only sizes and dtype, and the score must not project k. `rows_at_end`: ScoreShape explains
/// it.
Call check(const char* function, const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
           const CachedKv* cached = nullptr, bool rows_at_end = false);
/// Checks a call for the scores only: v is undefined, and only the options score and scale are used.
Call check_scores(const char* function, const Tensor& q, const Tensor& k, const AttentionOptions& options);

}  // namespace attn
