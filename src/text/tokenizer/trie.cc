// src/text/tokenizer/trie.cc: builds a tree of bytes level by level, and walks through it.
#include "text/tokenizer/trie.h"

#include <algorithm>

namespace attn::text {

Trie::Trie(std::vector<std::pair<std::string_view, std::int32_t>> tokens) {
  std::stable_sort(tokens.begin(), tokens.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  // The tokens of a node are those of a range; all of them begin with the same `depth` bytes.
  struct Open {
    std::size_t begin, end, depth;
  };
  std::vector<Open> nodes{{0, tokens.size(), 0}};
  bytes_.push_back(0);
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    auto [begin, end, depth] = nodes[node];
    std::int32_t id = -1;
    for (; begin < end && tokens[begin].first.size() == depth; ++begin) id = tokens[begin].second;
    ids_.push_back(depth == 0 ? -1 : id);
    children_.push_back(static_cast<std::uint32_t>(nodes.size()));
    while (begin < end) {
      const char byte = tokens[begin].first[depth];
      const auto after = std::upper_bound(
          tokens.begin() + static_cast<std::ptrdiff_t>(begin), tokens.begin() + static_cast<std::ptrdiff_t>(end), byte,
          [depth = depth](char value, const auto& token) {
            return static_cast<unsigned char>(value) < static_cast<unsigned char>(token.first[depth]);
          });
      const auto next = static_cast<std::size_t>(after - tokens.begin());
      nodes.push_back({begin, next, depth + 1});
      bytes_.push_back(static_cast<unsigned char>(byte));
      begin = next;
    }
  }
  children_.push_back(static_cast<std::uint32_t>(nodes.size()));
}

Trie::Node Trie::child(Node node, unsigned char byte) const {
  const auto begin = bytes_.begin() + children_[node], end = bytes_.begin() + children_[node + 1];
  const auto found = std::lower_bound(begin, end, byte);
  return found != end && *found == byte ? static_cast<Node>(found - bytes_.begin()) : none;
}

Trie::Node Trie::child(Node node, std::string_view text) const {
  for (std::size_t at = 0; at < text.size() && node != none; ++at)
    node = child(node, static_cast<unsigned char>(text[at]));
  return node;
}

}  // namespace attn::text
