// src/model/gguf/merges.cc: finds the merges that the scores of SentencePiece's tokens stand for.
#include "model/gguf/merges.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <tuple>
#include <unordered_map>

namespace attn::gguf {
namespace {

/// A merge with what it is ordered by.
struct ScoredMerge {
  text::Merge merge;
  float score;
  std::uint32_t left_characters, right_characters;
};

/// Whether a character begins at that byte of UTF-8.
bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0u) != 0x80u; }

std::uint32_t characters(std::string_view text) {
  return static_cast<std::uint32_t>(std::count_if(text.begin(), text.end(), begins_character));
}

}  // namespace

std::vector<text::Merge> merges_of_scores(const std::vector<std::string_view>& tokens, const std::vector<float>& scores,
                                          const std::vector<bool>& merged) {
  std::unordered_map<std::string_view, std::int32_t> ids;
  ids.reserve(tokens.size());
  for (std::size_t id = 0; id < tokens.size(); ++id)
    if (merged[id] && !tokens[id].empty()) ids.emplace(tokens[id], static_cast<std::int32_t>(id));
  std::vector<ScoredMerge> merges;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    const std::string_view token = tokens[id];
    if (token.empty() || !merged[id]) continue;
    const auto first = static_cast<std::ptrdiff_t>(merges.size());
    for (std::size_t at = 1; at < token.size(); ++at) {
      if (!begins_character(token[at])) continue;
      const auto left = ids.find(token.substr(0, at));
      if (left == ids.end()) continue;
      const auto right = ids.find(token.substr(at));
      if (right == ids.end()) continue;
      merges.push_back({{left->second, right->second, static_cast<std::int32_t>(id)},
                        std::isnan(scores[id]) ? 0 : scores[id],  // sorting needs an order
                        characters(left->first),
                        characters(right->first)});
    }
    std::sort(merges.begin() + first, merges.end(), [](const ScoredMerge& a, const ScoredMerge& b) {
      return std::tie(a.merge.left, a.merge.right) < std::tie(b.merge.left, b.merge.right);
    });
  }
  std::stable_sort(merges.begin(), merges.end(), [](const ScoredMerge& a, const ScoredMerge& b) {
    return std::tie(a.score, a.left_characters, a.right_characters) >
           std::tie(b.score, b.left_characters, b.right_characters);
  });
  std::vector<text::Merge> result;
  result.reserve(merges.size());
  for (const ScoredMerge& one : merges) result.push_back(one.merge);
  return result;
}

}  // namespace attn::gguf
