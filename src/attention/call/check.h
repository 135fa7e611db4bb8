// src/attention/call/check.h: the checks of a call: every user error is thrown here, before anything is computed or
// written.
#pragma once
#include "attention/call/cached_kv.h"
#include "attention/call/call.h"

namespace attn {

/// Checks everything, projects q and k where the score does so, and describes the problem. With `cached`, k and v tell
/// sizes and dtype alone, and the score must leave k as it is. `rows_at_end`: as ScoreShape has it.
Call check(const char* function, const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
           const CachedKv* cached = nullptr, bool rows_at_end = false);
/// Scores only: v undefined; of the options only score and scale.
Call check_scores(const char* function, const Tensor& q, const Tensor& k, const AttentionOptions& options);

}  // namespace attn
