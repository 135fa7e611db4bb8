// src/text/tokenizer/wordpiece.cc: encodes words by WordPiece.
#include "text/tokenizer/wordpiece.h"

#include "text/unicode.h"

namespace attn::text {
namespace {

Trie trie_of(const std::vector<std::string>& tokens) {
  std::vector<std::pair<std::string_view, std::int32_t>> named;
  for (std::size_t id = 0; id < tokens.size(); ++id)
    if (!tokens[id].empty()) named.emplace_back(tokens[id], static_cast<std::int32_t>(id));
  return Trie(std::move(named));
}

}  // namespace

WordPiece::WordPiece(const std::vector<std::string>& tokens, Options options)
    : options_(std::move(options)), trie_(trie_of(tokens)), inside_(trie_.child(Trie::root, options_.prefix)) {}

void WordPiece::encode(std::string_view word, std::vector<std::int64_t>& ids) const {
  const std::size_t before = ids.size();
  const auto give_up = [&] {
    ids.resize(before);
    ids.push_back(options_.unknown);
  };
  std::size_t characters = 0;
  for (std::size_t at = 0; at < word.size(); at += code_point_at(word, at).bytes)
    if (++characters > options_.longest) return give_up();
  for (std::size_t at = 0; at < word.size();) {
    Trie::Node node = at == 0 ? Trie::root : inside_;
    std::int32_t longest = -1;
    std::size_t end = at;
    for (std::size_t i = at; i < word.size() && node != Trie::none; ++i) {
      node = trie_.child(node, static_cast<unsigned char>(word[i]));
      if (node == Trie::none || trie_.id(node) < 0) continue;
      longest = trie_.id(node);
      end = i + 1;
    }
    if (longest < 0) return give_up();
    ids.push_back(longest);
    at = end;
  }
}

}  // namespace attn::text
