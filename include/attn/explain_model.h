// include/attn/explain_model.h: explains the attention of one head of a trained language model on a text.
#pragma once
#include <attn/explain.h>
#include <attn/model.h>
#include <attn/tokenizer.h>

#include <cstdint>
#include <string>

namespace attn {

/// Which head is explained, and how.
struct TrainedHead {
  std::int64_t layer = 0, head = 0;  ///< from 0
  bool gradients = false;            ///< also the backward pass, for the loss 1/2 sum of context^2
  Language language = Language::en;
};

/// Runs the model on a text and returns the steps of one head: tokens, ids, queries, keys and values (normalised and
/// rotated where the model does so), scores, mask, weights, context. They are the numbers that the model computes.
/// Errors   ValueError (a layer or head that does not exist, a text without tokens, longer than the model's context or
///          than 2048 tokens).
Explanation explain_model(const LanguageModel& model, const Tokenizer& tokenizer, const std::string& text,
                          const TrainedHead& at = {});

}  // namespace attn
