// src/explain/modifiers.h: sets the score modifiers of an explanation in AttentionOptions, and computes the scores
// after each of them.
#pragma once
#include <attn/explain.h>

#include "explain/run.h"

namespace attn::explain_detail {

class Additions;

/// Sets softcap, bias, score_mod, temperature, sinks and dropout in `call`. The table of a relative bias is drawn from
/// the explanation's seed; ALiBi's slopes follow from the number of heads. `cross`: rows and keys belong to two texts,
/// each counted from its own first token.
void set_modifiers(const ExplainOptions& options, std::int64_t heads, Dtype dtype, bool cross, AttentionOptions& call);

/// Returns the bias itself and the scores after each modifier, in the order of the call, with the bits of the call.
/// `additions`: null if there are none.
std::vector<Stage> modifier_stages(const ExplainOptions& options, const AttentionOptions& call, const Run& run,
                                   const Additions* additions);

/// Returns the sink's share of each row's weight: [B, H, Tq, 1].
Tensor share_of_sink(double sink, const Tensor& logsumexp);

}  // namespace attn::explain_detail
