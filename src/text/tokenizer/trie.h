// src/text/tokenizer/trie.h: a vocabulary as a tree of bytes: finds the tokens that a text begins with.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace attn::text {

/// Tokens with more bytes are refused: encoding takes the text's length times that of the longest token.
inline constexpr std::size_t longest_token = 1024;

class Trie {
 public:
  using Node = std::uint32_t;
  static constexpr Node root = 0, none = 0xFFFFFFFF;

  Trie() : Trie(std::vector<std::pair<std::string_view, std::int32_t>>()) {}
  /// Tokens with their ids; of equal tokens the last one counts. An empty token is never found.
  explicit Trie(std::vector<std::pair<std::string_view, std::int32_t>> tokens);

  /// Returns the node that follows `node` by a byte, or none.
  Node child(Node node, unsigned char byte) const;
  /// Returns the node that follows `node` by a text, or none.
  Node child(Node node, std::string_view text) const;
  /// Returns the id of the token that ends at a node; -1: none does.
  std::int32_t id(Node node) const { return ids_[node]; }

 private:
  // The children of node n are the nodes from children_[n] to children_[n + 1], sorted by their bytes.
  std::vector<std::uint32_t> children_;
  std::vector<unsigned char> bytes_;
  std::vector<std::int32_t> ids_;
};

}  // namespace attn::text
