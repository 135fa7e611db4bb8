// src/text/unicode.h: reads the code points of UTF-8 text, classifies them, and groups them to visible characters.
#pragma once
#include <cstddef>
#include <string_view>

namespace attn::text {

inline constexpr char32_t not_a_character = 0xFFFFFFFF;

struct CodePoint {
  char32_t value;  // not_a_character for a byte that is not UTF-8; `bytes` is 1 then
  std::size_t bytes;
};
/// Returns the code point that begins at `at` (which must be inside).
CodePoint code_point_at(std::string_view text, std::size_t at);

/// What a reader sees as one character: a letter with its marks, an emoji sequence, a flag.
struct Character {
  char32_t first;
  std::size_t bytes;
  int width;  // in columns: 0, 1 or 2
};
Character character_at(std::string_view text, std::size_t at);

/// Returns whether c is white space for Python's str.split.
bool is_space(char32_t c);
/// Returns whether c is "，", "、" or "､": a comma after which no space follows.
bool is_wide_comma(char32_t c);
/// Returns whether c is Han, Hiragana, Katakana, or punctuation used among them.
bool is_han_or_kana(char32_t c);
/// Returns whether c takes no column of its own: marks, joiners, variation selectors.
bool is_zero_width(char32_t c);
/// Returns whether c takes two columns.
bool is_wide(char32_t c);

/// Returns whether c could change how the text around it is shown or read: a control character, a line end, a mark that
/// sets the direction of the text after it, or U+FFFE or U+FFFF (which XML forbids) of any plane.
bool steers(char32_t c);

/// Throws ValueError "function: byte 0xFF at offset 3 is not UTF-8" unless the text is UTF-8.
void check_utf8(const char* function, std::string_view text);

}  // namespace attn::text
