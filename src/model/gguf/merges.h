// src/model/gguf/merges.h: the merges that the scores of SentencePiece's tokens stand for.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace attn::gguf {

/// Returns whether tokens of that type in a GGUF file take part in merges: normal, user-defined and unused ones.
constexpr bool is_merged(std::int64_t type) { return type == 1 || type == 4 || type == 5; }

/// Tokens may have that many bytes: the time for a token grows with the square of its length.
inline constexpr std::size_t longest_token = 1024;

/// Returns a merge for each way to make a token of two others, the best first: by the score of the token they make,
/// then with the longer left part, then in the order of the tokens. That is the order of transformers, which writes
/// tokenizer.json from SentencePiece's files. `ids`: of each token; `merged`: whether an id takes part.
std::vector<std::pair<std::string_view, std::string_view>> merges_of_scores(
    const std::vector<std::string_view>& tokens, const std::vector<float>& scores,
    const std::unordered_map<std::string_view, std::size_t>& ids, const std::function<bool(std::size_t)>& merged);

}  // namespace attn::gguf
