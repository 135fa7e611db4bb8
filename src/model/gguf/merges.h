// src/model/gguf/merges.h: the merges that the scores of SentencePiece's tokens imply.
#pragma once
#include "text/tokenizer/bpe.h"

#include <cstdint>
#include <string_view>
#include <vector>

namespace attn::gguf {

/// Returns whether tokens of that type in a GGUF file take part in merges: normal, user-defined and unused ones.
constexpr bool is_merged(std::int64_t type) { return type == 1 || type == 4 || type == 5; }

/// Returns a merge for each way to make a token of two others, the best first: by the score of the token they make,
/// then with the longer left part, then in the order of the tokens. That is the order of transformers, which writes
/// tokenizer.json from SentencePiece's files. `merged`: whether an id takes part. Tokens have at most
/// text::longest_token bytes: the time for a token grows with the square of its length.
std::vector<text::Merge> merges_of_scores(const std::vector<std::string_view>& tokens, const std::vector<float>& scores,
                                          const std::vector<bool>& merged);

}  // namespace attn::gguf
