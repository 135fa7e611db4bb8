// src/attention/unfused/unfused_score.h: a call's score expression made of operations that have gradients of their own.
#pragma once
#include "attention/call/call.h"

namespace attn {

/// The expression of scores [B, Hq, Tq, Tk] in the compute type. `tables`: the tensors it looks up, in the order of
/// call.score_mod->any_rows.values; `visible`: bool, the pairs that take part; the others look up the first element.
Tensor modified_scores(const Call& call, const Tensor& scores, const std::vector<Tensor>& tables,
                       const Tensor& visible);

}  // namespace attn
