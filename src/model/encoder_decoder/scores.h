// src/model/encoder_decoder/scores.h: changes the scores of the next token as the options say, in f32 and in the order of
// transformers' generate.
#pragma once
#include <attn/translation.h>

#include <vector>

namespace attn {

/// `said`: the start token and the tokens so far. The scores [V] are log-probabilities (beam search) or logits.
void process_scores(const TranslateOptions& options, const std::vector<std::int64_t>& said, std::vector<float>& scores);

}  // namespace attn
