// include/attn/text.h: text becomes tokens, tokens become ids, and back; and how wide a text stands on a terminal.
#pragma once
#include <attn/export.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace attn::text {

/// How a text is cut.
enum class Tokens {
  words,       // at white space
  characters,  // each character by itself, white space left out; marks stay with their letter, emoji sequences whole
  automatic,   // Han, Hiragana, Katakana and their punctuation by characters, everything else by words, side by side
};

/// The tokens of a UTF-8 text, in order.
///
/// Commas are no tokens; all other punctuation stays where it stands ("first." is a word, "。" is a character). "," is
/// removed as the classic `sentence.replace(',', '').split()` does, so "1,000" is one word; the commas of Chinese and
/// Japanese ("，", "、", "､") separate, for no space follows them. White space is Python's.
/// Errors   ValueError with the offset of the first byte that is not UTF-8.
ATTN_API std::vector<std::string> split(std::string_view text, Tokens tokens = Tokens::automatic);

/// Tokens as one text: a space between words, none beside Chinese and Japanese characters.
ATTN_API std::string join(const std::vector<std::string>& tokens);

/// Distinct tokens in the order of their code points (Python's `sorted`); a token's id is its place.
/// Thread safety: constant once made.
class ATTN_API Vocabulary {
 public:
  Vocabulary() = default;
  /// Any order, any repetition. ValueError when a token is not UTF-8.
  explicit Vocabulary(std::vector<std::string> tokens);
  /// The vocabulary of a text's own tokens.
  static Vocabulary of(std::string_view text, Tokens tokens = Tokens::automatic) {
    return Vocabulary(split(text, tokens));
  }

  std::int64_t size() const { return static_cast<std::int64_t>(tokens_.size()); }
  /// All tokens, by id.
  const std::vector<std::string>& tokens() const { return tokens_; }
  std::optional<std::int64_t> find(std::string_view token) const;
  /// ValueError names the first token that is not in the vocabulary.
  std::vector<std::int64_t> encode(const std::vector<std::string>& tokens) const;
  /// ValueError names an id out of range.
  const std::string& token(std::int64_t id) const;
  std::vector<std::string> decode(const std::vector<std::int64_t>& ids) const;

 private:
  std::vector<std::string> tokens_;  // sorted
};

/// Offset of the first byte that is not UTF-8 (overlong forms, surrogates and values above U+10FFFF are not); none:
/// valid.
ATTN_API std::optional<std::size_t> invalid_utf8(std::string_view text);

/// Columns on a terminal: Chinese, Japanese, Korean and emoji two, combining marks none, a byte that is not UTF-8 one.
ATTN_API int display_width(std::string_view text);
/// At most `columns` wide: cut at a character, with "…" for what is gone. `columns` 0 gives "".
ATTN_API std::string truncate_to_width(std::string_view text, int columns);

}  // namespace attn::text
