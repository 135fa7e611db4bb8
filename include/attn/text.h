// include/attn/text.h: splits text into tokens, maps tokens to ids and back, and computes the width of text on a
// terminal.
#pragma once
#include <attn/export.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace attn::text {

/// How a text is split into tokens.
enum class Tokens {
  words,  // at white space
  // every character is a token, without white space; combining marks stay with their letter, emoji sequences stay whole
  characters,
  automatic,  // Han, Hiragana, Katakana and their punctuation by characters, everything else by words
};

/// Returns the tokens of a UTF-8 text, in order.
///
/// Commas are not tokens; all other punctuation stays in place ("first." is a word, "。" is a character). "," is
/// removed, as the common `sentence.replace(',', '').split()` does, so "1,000" is one word. The commas of Chinese and
/// Japanese ("，", "、", "､") separate words, because no space follows them. White space is defined as in Python.
/// Errors   ValueError with the offset of the first byte that is not UTF-8.
ATTN_API std::vector<std::string> split(std::string_view text, Tokens tokens = Tokens::automatic);

/// Joins tokens to one text, with a space between words, but none next to Chinese and Japanese characters.
ATTN_API std::string join(const std::vector<std::string>& tokens);

/// The distinct tokens in the order of their code points (Python's `sorted`); a token's id is its index. Thread safety:
/// immutable.
class ATTN_API Vocabulary {
 public:
  Vocabulary() = default;
  /// Takes tokens in any order, with repetitions. ValueError when a token is not UTF-8.
  explicit Vocabulary(std::vector<std::string> tokens);
  /// Makes the vocabulary of the tokens of a text.
  static Vocabulary of(std::string_view text, Tokens tokens = Tokens::automatic) {
    return Vocabulary(split(text, tokens));
  }

  std::int64_t size() const { return static_cast<std::int64_t>(tokens_.size()); }
  /// Returns all tokens, in the order of their ids.
  const std::vector<std::string>& tokens() const { return tokens_; }
  std::optional<std::int64_t> find(std::string_view token) const;
  /// Returns the ids of the tokens; ValueError names the first token that is not in the vocabulary.
  std::vector<std::int64_t> encode(const std::vector<std::string>& tokens) const;
  /// Returns the token of an id; ValueError names an id out of range.
  const std::string& token(std::int64_t id) const;
  std::vector<std::string> decode(const std::vector<std::int64_t>& ids) const;

 private:
  std::vector<std::string> tokens_;  // sorted
};

/// Returns the offset of the first byte that is not valid UTF-8 (overlong forms, surrogates and values above U+10FFFF
/// are invalid); nullopt if the text is valid.
ATTN_API std::optional<std::size_t> invalid_utf8(std::string_view text);

/// Returns the columns that a text takes on a terminal: two for Chinese, Japanese, Korean and emoji, none for combining
/// marks, one for a byte that is not UTF-8.
ATTN_API int display_width(std::string_view text);
/// Shortens the text to at most `columns` columns: cut between characters, with "…" for the removed part. `columns` 0
/// gives "".
ATTN_API std::string truncate_to_width(std::string_view text, int columns);

}  // namespace attn::text
