// src/attention/unfused/unfused_score.h: computes a call's score expression by operations that have gradients
// themselves.
#pragma once
#include "attention/call/call.h"

namespace attn {

/// Applies the expression to scores [B, H, Tq, Tk] in the compute type. `tables`: the tensors that it looks up, in the
/// order of call.score_mod->any_rows.values. `visible`: bool, the pairs that take part; other pairs look up the first
/// element.
Tensor modified_scores(const Call& call, const Tensor& scores, const std::vector<Tensor>& tables,
                       const Tensor& visible);

}  // namespace attn
