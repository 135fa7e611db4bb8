// src/explain/modifiers.h: the score modifiers of an explanation as AttentionOptions, and the scores after each of
// them.
#pragma once
#include <attn/explain.h>

#include "explain/run.h"

namespace attn::explain_detail {

/// Softcap, bias, score_mod, temperature, sinks and dropout of an explanation; parameters are drawn from its seed or
/// follow from the number of heads. `cross`: rows and keys of two texts, both counted from the first.
void set_modifiers(const ExplainOptions& options, std::int64_t heads, Dtype dtype, bool cross, AttentionOptions& call);

/// The scores after each of them, in the order of the call, and the bias itself; bits are those inside the call.
std::vector<Stage> modifier_stages(const ExplainOptions& options, const AttentionOptions& call, const Run& run);

/// The share of each row's weight that a sink takes: [B, H, Tq, 1].
Tensor share_of_sink(double sink, const Tensor& logsumexp);

}  // namespace attn::explain_detail
