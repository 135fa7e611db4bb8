// src/text/tokenizer/pattern.h: what a normalizer replaces and a pre-tokenizer splits at: a text, or a known regular
// expression.
#pragma once
#include "text/tokenizer/cut.h"

#include <optional>
#include <string>
#include <string_view>

namespace attn::text {

/// Returns whether c matches \s, which is the property White_Space.
bool is_white_space(char32_t c);
/// Returns whether c matches \w.
bool is_word_character(char32_t c);
/// Returns whether BERT's pre-tokenizer splits at c: punctuation, and all signs of ASCII.
bool is_split_at(char32_t c);

/// Finds what a text or a regular expression matches. No regular expression is run: those of the models are known.
class Pattern {
 public:
  /// `text` must not be empty.
  static Pattern literal(std::string text);
  /// Returns nullopt for an expression that is not known.
  static std::optional<Pattern> regex(std::string_view expression);

  struct Match {
    std::size_t begin, end;
  };
  /// Returns the first match at or after `at`, never an empty one; if there is none its begin is the size of the text.
  Match find(std::string_view text, std::size_t at) const;

 private:
  enum class Kind { literal, spaces, blanks, line_ends, blanks_or_line_ends, cut };
  std::size_t match_end(std::string_view text, std::size_t at) const;
  Kind kind_ = Kind::literal;
  std::string literal_;
  std::size_t least_ = 1;  // characters of a run of spaces or blanks
  Cut cut_ = Cut::gpt2;
};

}  // namespace attn::text
