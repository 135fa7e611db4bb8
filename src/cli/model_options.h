// src/cli/model_options.h: declares what the verbs of language models share: how the next token is chosen, the cache,
// the draft; and loads the model, its tokenizer and the draft.
#pragma once
#include "cli/parser.h"

#include <attn/generate.h>
#include <attn/ranks.h>

#include <optional>
#include <string>

namespace attn::cli {

/// The options as they are given.
struct ModelOptions {
  std::string folder, dtype, draft, storage = "same", language;
  std::string temperature, top_p = "1", min_p, repetition_penalty = "1";
  std::int64_t top_k = 0, tokens = 0, draft_tokens = 7, window = 0, sinks = 4;
  std::uint64_t seed = 0;
  Option draft_tokens_given, sinks_given, language_given;
};

/// What differs between the verbs when nothing is given.
struct ModelDefaults {
  std::int64_t tokens;
  const char *temperature, *min_p;
};
/// Adds the options to a verb.
void add_model_options(Parser& parser, ModelOptions& options, const ModelDefaults& defaults);

/// A model, and what it needs to generate text.
struct SpeakingModel {
  Tokenizer tokenizer;
  LanguageModel model;
  std::optional<LanguageModel> draft;
};

/// Adds --dtype, the dtype of a model's weights, to a verb.
Option add_weights_dtype(Parser& parser, std::string& name);
/// Returns the dtype that --dtype names for a model's weights; nullopt if it is not given. Throws a UsageError.
std::optional<Dtype> weights_dtype(const std::string& name);
/// Throws a UsageError for options that say nothing together.
void check_options(const ModelOptions& given);
/// Throws a ValueError if a GGUF file that the options name has an architecture that attn does not read.
void check_architectures(const ModelOptions& given);
/// Loads what the options name. Throws a ValueError if the tokens of the draft are not those of the model. Collective:
/// each of several ranks has a part of the model and the complete draft.
SpeakingModel load_model(const ModelOptions& given, const Ranks& ranks = Ranks());
/// Returns the options of the library's call; they point to `loaded`.
GenerateOptions generate_options(const ModelOptions& given, const SpeakingModel& loaded);
/// Returns the options of the cache of one text.
ModelCacheOptions cache_options(const ModelOptions& given, const LanguageModel& model);

}  // namespace attn::cli
