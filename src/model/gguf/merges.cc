// src/model/gguf/merges.cc: finds the merges that the scores of SentencePiece's tokens imply.
#include "model/gguf/merges.h"

#include "text/tokenizer/trie.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <tuple>

namespace attn::gguf {
namespace {

/// A merge with its sort key.
struct ScoredMerge {
  text::Merge merge;
  float score;
  std::uint16_t left_characters, right_characters;
};
static_assert(text::longest_token < 1 << 16);

/// Whether a character begins at that byte of UTF-8.
bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0u) != 0x80u; }

std::uint16_t characters(std::string_view text) {
  return static_cast<std::uint16_t>(std::count_if(text.begin(), text.end(), begins_character));
}

}  // namespace

std::vector<text::Merge> merges_of_scores(const std::vector<std::string_view>& tokens, const std::vector<float>& scores,
                                          const std::vector<bool>& merged) {
  text::IndexTable ids(tokens.size());
  const auto hash = std::hash<std::string_view>();
  const auto id_of = [&](std::string_view text) {
    return ids.find(hash(text), [&](std::int32_t id) { return tokens[static_cast<std::size_t>(id)] == text; });
  };
  for (std::size_t id = 0; id < tokens.size(); ++id)
    if (merged[id] && !tokens[id].empty() && id_of(tokens[id]) < 0)
      ids.put(hash(tokens[id]), static_cast<std::int32_t>(id), [](std::int32_t) { return false; });
  std::vector<ScoredMerge> merges;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    const std::string_view token = tokens[id];
    if (token.empty() || !merged[id]) continue;
    for (std::size_t at = 1; at < token.size(); ++at) {
      if (!begins_character(token[at])) continue;
      const std::int32_t left = id_of(token.substr(0, at)), right = left < 0 ? -1 : id_of(token.substr(at));
      if (right < 0) continue;
      merges.push_back({{left, right, static_cast<std::int32_t>(id)},
                        std::isnan(scores[id]) ? 0 : scores[id],  // sorting needs an order
                        characters(token.substr(0, at)),
                        characters(token.substr(at))});
    }
  }
  std::sort(merges.begin(), merges.end(), [](const ScoredMerge& a, const ScoredMerge& b) {
    return std::tie(b.score, b.left_characters, b.right_characters, a.merge.result, a.merge.left, a.merge.right) <
           std::tie(a.score, a.left_characters, a.right_characters, b.merge.result, b.merge.left, b.merge.right);
  });
  std::vector<text::Merge> result;
  result.reserve(merges.size());
  for (const ScoredMerge& one : merges) result.push_back(one.merge);
  return result;
}

}  // namespace attn::gguf
