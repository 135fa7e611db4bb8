// src/text/tokenizer/unigram.h: encodes a text as the tokens whose scores have the greatest sum (SentencePiece).
#pragma once
#include "text/tokenizer/trie.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace attn::text {

/// Kudo 2018 (1804.10959), with the order of sums and the choice among equal ones of Hugging Face's library.
class Unigram {
 public:
  struct Options {
    std::optional<std::int64_t> unknown;  // the id of characters without a token
    bool byte_fallback = false;           // a text without a token becomes the tokens of its bytes, if all are there
  };
  Unigram(const std::vector<std::string>& tokens, std::vector<double> scores, Options options);
  /// Throws a ValueError if a character has no token and there is none for what is unknown.
  void encode(std::string_view text, std::vector<std::int64_t>& ids) const;
  const std::vector<double>& scores() const { return scores_; }
  const Options& options() const { return options_; }

 private:
  void look_up(std::string_view part, std::vector<std::int64_t>& ids) const;
  std::vector<double> scores_;  // by id
  double unknown_score_;
  Options options_;
  Trie trie_;
};

}  // namespace attn::text
