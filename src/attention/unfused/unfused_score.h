// src/attention/unfused/unfused_score.h: computes a call's score expression by operations that have gradients
// themselves.
#pragma once
#include "attention/call/call.h"

namespace attn {

/// Applies an expression to scores, or weights, [B, H, Tq, Tk] in the compute type. `tables`: the tensors that it looks
/// up, in the order of lowered.values. `masked`: bool, the masked pairs; no gradient flows through them to a table.
Tensor modified_scores(const Call& call, const ScoreExpression& expression, const LoweredProgram& lowered,
                       const Tensor& scores, const std::vector<Tensor>& tables, const Tensor& masked);

}  // namespace attn
