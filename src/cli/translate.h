// src/cli/translate.h: declares what attn generate does with an encoder-decoder: it answers or translates each text.
#pragma once
#include "cli/model_options.h"

#include <attn/translation.h>

#include <string>
#include <vector>

namespace attn::cli {

/// The options that only an encoder-decoder has, as they are given.
struct TranslationOptions {
  std::int64_t beams = 1;
  std::string length_penalty = "1", source_language, target_language;
  std::vector<Option> own, all;  // those above; all of the verb
};
/// Adds them to a verb.
void add_translation_options(Parser& parser, TranslationOptions& options);

/// Throws a UsageError if one of them is given for a language model.
void check_no_translation(const TranslationOptions& options);

/// The arguments of attn generate, besides the options of the model.
struct TranslationTask {
  std::vector<std::string> texts;
  std::int64_t samples = 1;
  bool json = false;
};
/// Prints the generated texts, one a line, each as soon as it is complete; or JSON at the end.
void run_translation(const ModelOptions& model, const TranslationOptions& options, const TranslationTask& task);

}  // namespace attn::cli
