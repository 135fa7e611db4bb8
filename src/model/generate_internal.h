// src/model/generate_internal.h: declares functions that sampling, generation and text generation share.
#pragma once
#include <attn/generate.h>

namespace attn {

/// Does what generate_text does, for prompts that the tokenizer has already encoded.
std::vector<GeneratedText> generate_text_of_ids(const LanguageModel& model, const Tokenizer& tokenizer,
                                                const std::vector<std::vector<std::int64_t>>& prompts,
                                                const GenerateTextOptions& options);

/// Throws a ValueError for an option out of its range.
void check_sample(const SampleOptions& options);

}  // namespace attn
