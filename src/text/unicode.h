// src/text/unicode.h: code points of UTF-8 text, what they are, and which belong together as one character.
#pragma once
#include <cstddef>
#include <string_view>

namespace attn::text {

inline constexpr char32_t not_a_character = 0xFFFFFFFF;

struct CodePoint {
  char32_t value;     // not_a_character for a byte that is not UTF-8
  std::size_t bytes;  // 1 then
};
/// The code point that begins at `at` (which must be inside).
CodePoint code_point_at(std::string_view text, std::size_t at);

/// What a reader sees as one character: a letter with its marks, an emoji with what is joined to it, a flag.
struct Character {
  char32_t first;
  std::size_t bytes;
  int width;  // columns: 0, 1 or 2
};
Character character_at(std::string_view text, std::size_t at);

/// White space as Python's str.split sees it.
bool is_space(char32_t c);
/// "，", "、", "､": commas that no space follows.
bool is_wide_comma(char32_t c);
/// Han, Hiragana, Katakana, and the punctuation set among them.
bool is_han_or_kana(char32_t c);
/// Takes no column of its own: marks, joiners, variation selectors.
bool is_zero_width(char32_t c);
/// Takes two columns.
bool is_wide(char32_t c);

/// Controls, line ends, marks that reverse the direction of what follows, and code points XML has no place for.
bool steers(char32_t c);

/// ValueError "function: byte 0xFF at offset 3 is not UTF-8".
void check_utf8(const char* function, std::string_view text);

}  // namespace attn::text
