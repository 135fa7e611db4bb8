// src/text/tokenizer/wordpiece.h: encodes a word as the longest tokens of a vocabulary, from left to right (BERT).
#pragma once
#include "text/tokenizer/trie.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace attn::text {

class WordPiece {
 public:
  struct Options {
    std::string prefix = "##";  // of tokens that continue a word
    std::int64_t unknown = 0;   // the id of a word that the vocabulary does not make
    std::size_t longest = 100;  // a word with more characters is unknown
  };
  WordPiece(const std::vector<std::string>& tokens, Options options);
  void encode(std::string_view word, std::vector<std::int64_t>& ids) const;
  const Options& options() const { return options_; }

 private:
  Options options_;
  Trie trie_;
  Trie::Node inside_;  // where the tokens that continue a word begin
};

}  // namespace attn::text
