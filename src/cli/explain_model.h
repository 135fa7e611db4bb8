// src/cli/explain_model.h: a trained head's attention on a text, as steps.
#pragma once
#include <attn/explain.h>
#include <attn/model.h>
#include <attn/tokenizer.h>

namespace attn::cli {

struct TrainedHead {
  std::int64_t layer = 0, head = 0;
  bool gradients = false;  // also the way back from 1/2 sum of context^2
};

/// Tokens, ids, the head's queries, keys and values (normed and turned where the model does so), scores, mask, weights,
/// context: the numbers the model computes.
Explanation explain_model(const LanguageModel& model, const Tokenizer& tokenizer, const std::string& text,
                          const TrainedHead& at, Language language);

}  // namespace attn::cli
