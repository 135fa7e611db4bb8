// src/cli/explain_model.h: explains the attention of one head of a trained model on a text, as steps.
#pragma once
#include <attn/explain.h>
#include <attn/model.h>
#include <attn/tokenizer.h>

namespace attn::cli {

struct TrainedHead {
  std::int64_t layer = 0, head = 0;
  bool gradients = false;  // also the backward pass, for the loss 1/2 sum of context^2
};

/// Returns the steps: tokens, ids, the head's queries, keys and values (normalised and rotated where the model does
/// so), scores, mask, weights, context. They are the numbers that the model computes.
Explanation explain_model(const LanguageModel& model, const Tokenizer& tokenizer, const std::string& text,
                          const TrainedHead& at, Language language);

}  // namespace attn::cli
