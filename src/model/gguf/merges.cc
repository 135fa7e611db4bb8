// src/model/gguf/merges.cc: finds the merges that the scores of SentencePiece's tokens stand for.
#include "model/gguf/merges.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <tuple>

namespace attn::gguf {
namespace {

struct Merge {
  std::string_view left, right;
  std::size_t left_id, right_id;
  float score;
  std::size_t left_characters, right_characters;
};

/// Whether a character begins at that byte of UTF-8.
bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0u) != 0x80u; }

std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), begins_character));
}

}  // namespace

std::vector<std::pair<std::string_view, std::string_view>> merges_of_scores(
    const std::vector<std::string_view>& tokens, const std::vector<float>& scores,
    const std::unordered_map<std::string_view, std::size_t>& ids, const std::function<bool(std::size_t)>& merged) {
  std::vector<Merge> merges;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    const std::string_view token = tokens[id];
    if (token.empty() || !merged(id)) continue;
    const auto first = static_cast<std::ptrdiff_t>(merges.size());
    for (std::size_t at = 1; at < token.size(); ++at) {
      if (!begins_character(token[at])) continue;
      const auto left = ids.find(token.substr(0, at));
      if (left == ids.end() || !merged(left->second)) continue;
      const auto right = ids.find(token.substr(at));
      if (right == ids.end() || !merged(right->second)) continue;
      merges.push_back({left->first, right->first, left->second, right->second,
                        std::isnan(scores[id]) ? 0 : scores[id],  // sorting needs an order
                        characters(left->first), characters(right->first)});
    }
    std::sort(merges.begin() + first, merges.end(), [](const Merge& a, const Merge& b) {
      return std::tie(a.left_id, a.right_id) < std::tie(b.left_id, b.right_id);
    });
  }
  std::stable_sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) {
    return std::tie(a.score, a.left_characters, a.right_characters) >
           std::tie(b.score, b.left_characters, b.right_characters);
  });
  std::vector<std::pair<std::string_view, std::string_view>> result;
  result.reserve(merges.size());
  for (const Merge& merge : merges) result.emplace_back(merge.left, merge.right);
  return result;
}

}  // namespace attn::gguf
