// src/explain/run_attention.h: runs explained attention, from tokens to the context vectors.
#pragma once
#include "explain/run.h"

namespace attn::explain_detail {

class Additions;

/// Returns the options of the call that computes weights and context.
AttentionOptions attention_options(const Run& run, const Matrices& matrices, const ExplainOptions& options);

/// `additions`: what the call has beside the options; null: nothing.
Run run_attention(const TokenizedTexts& tokens, const Matrices& matrices, const ExplainOptions& options, bool batch,
                  const Additions* additions = nullptr);

/// Returns for each sentence whether it has the same weights and context, bit by bit, when it is run alone and without
/// padding.
std::vector<bool> same_alone(const Run& run, const TokenizedTexts& tokens, const Matrices& matrices,
                             const ExplainOptions& options, const Additions* additions);

}  // namespace attn::explain_detail
