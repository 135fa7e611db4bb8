// include/attn/explain_model.h: explains the attention of one head of a trained language model on a text, and the
// cross-attention of an encoder-decoder between two; reads the options of an explanation from JSON.
#pragma once
#include <attn/explain.h>
#include <attn/model.h>
#include <attn/tokenizer.h>
#include <attn/translation.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace attn {

/// Reads options from a JSON object such as {"score": "additive", "heads": 2, "mask": "causal & window(2, 0)"}. The
/// names are those of ExplainOptions; matrices and functions cannot be given. Enumerations are words as the command has
/// them, `mask`, `score_mod` and `weights` their notation, `only` a list of names; null is the default.
/// Errors   FormatError (no JSON object), ValueError (an unknown name, a value of another type or out of range).
ExplainOptions explain_options(std::string_view json);

/// Which head is explained, and how.
struct TrainedHead {
  std::int64_t layer = 0, head = 0;    ///< from 0
  bool gradients = false;              ///< whether to add the backward pass, for the loss 1/2 sum of context^2
  std::vector<std::string> only = {};  ///< as in ExplainOptions
  Language language = Language::en;
};

/// Runs the model on a text and returns the steps of one head: tokens, ids, queries, keys and values (normalised and
/// rotated where the model does so), scores, mask, weights, context. They are the numbers that the model computes.
/// Errors   ValueError (a layer or head that does not exist, a text without tokens, longer than the model's context or
///          than 2048 tokens).
Explanation explain_model(const LanguageModel& model, const Tokenizer& tokenizer, const std::string& text,
                          const TrainedHead& at = {});

/// Which cross-attention of an encoder-decoder is explained, and how.
struct TrainedCross {
  std::int64_t layer = 0;                           ///< of the decoder, from 0
  std::optional<std::int64_t> head = std::nullopt;  ///< from 0; none: the mean of the weights of all heads
  std::vector<std::string> only = {};               ///< as in ExplainOptions
  Language language = Language::en;
};

/// Shows which tokens of a source text a target text attends to while it is generated: the weights of a layer's
/// cross-attention, as the model computes them. The rows are the tokens of the target, from the start token on (the
/// last row is the position after its last token), the columns those of the source. With a head: also its queries,
/// keys, values, scores and context. In the result `texts` holds the target (the queries), and `to` the source (keys
/// and values). `target`: by default what the model generates from the source.
/// Errors   ValueError (a layer or head that does not exist, a text without tokens, too long for the model or longer
///          than 2048 tokens)
Explanation explain_translation(const Translator& translator, const std::string& source,
                                const std::optional<std::string>& target, const TrainedCross& at = {});

}  // namespace attn
