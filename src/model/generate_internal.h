// src/model/generate_internal.h: what sampling, decoding and text share.
#pragma once
#include <attn/generate.h>

namespace attn {

/// generate_text of prompts that the tokenizer has encoded.
std::vector<GeneratedText> generate_text_of_ids(const LanguageModel& model, const Tokenizer& tokenizer,
                                                const std::vector<std::vector<std::int64_t>>& prompts,
                                                const GenerateTextOptions& options);

/// ValueError for an option out of its range.
void check_sample(const SampleOptions& options);

}  // namespace attn
