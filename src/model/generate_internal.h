// src/model/generate_internal.h: declares functions that sample, generate and generate_text share.
#pragma once
#include <attn/generate.h>

namespace attn {

/// Computes generate_text() for prompts that the tokenizer has already encoded.
std::vector<GeneratedText> generate_text_of_ids(const LanguageModel& model, const Tokenizer& tokenizer,
                                                const std::vector<std::vector<std::int64_t>>& prompts,
                                                const GenerateTextOptions& options);

/// generate() in steps.
class Generation {
 public:
  Generation(const LanguageModel& model, const std::vector<std::vector<std::int64_t>>& prompts,
             GenerateOptions options);
  ~Generation();
  /// Adds the next token to each text that is not over. Returns whether any is not over then.
  bool step();
  /// Returns the texts so far; `finish` of an unfinished one is Finish::stopped. The caller's cache then holds nothing
  /// but the texts.
  std::vector<Generated> texts();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Throws a ValueError that names a token of `ids` that the model does not have. `text` begins it: "generate: the
/// prompt".
void check_tokens(const std::string& text, const std::vector<std::int64_t>& ids, const Tokenizer& tokenizer,
                  std::int64_t vocab_size);

/// Throws a ValueError for an option out of its range.
void check_sample(const SampleOptions& options);

}  // namespace attn
