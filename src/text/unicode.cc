// src/text/unicode.cc: decodes UTF-8 strictly and classifies characters as far as the library needs it.
#include "text/unicode.h"

#include <attn/error.h>
#include <attn/text.h>
#include "runtime/format.h"

#include "text/unicode_ranges.h"

namespace attn::text {
namespace {

constexpr char32_t joiner = 0x200D, emoji_presentation = 0xFE0F;
bool is_skin_tone(char32_t c) { return c >= 0x1F3FB && c <= 0x1F3FF; }
bool is_flag_half(char32_t c) { return c >= 0x1F1E6 && c <= 0x1F1FF; }
/// Returns whether a zero-width joiner joins c and the next character to one picture. Between letters (Devanagari,
/// Arabic) a joiner only changes their shapes.
bool is_pictograph(char32_t c) { return (c >= 0x2190 && c <= 0x2BFF) || c >= 0x1F000; }

}  // namespace

CodePoint code_point_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() - at < bytes) return {not_a_character, 1};
  char32_t value = lead & (0x7Fu >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {not_a_character, 1};
    value = value << 6 | (byte(i) & 0x3F);
  }
  constexpr char32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  if (value < least[bytes] || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) return {not_a_character, 1};
  return {value, bytes};
}

Character character_at(std::string_view text, std::size_t at) {
  const CodePoint first = code_point_at(text, at);
  Character result{first.value, first.bytes, is_zero_width(first.value) ? 0 : is_wide(first.value) ? 2 : 1};
  if (first.value == not_a_character || first.value < 0x20 || is_space(first.value)) return result;
  bool joined = false;
  while (at + result.bytes < text.size()) {
    const CodePoint next = code_point_at(text, at + result.bytes);
    const bool flag = is_flag_half(first.value) && is_flag_half(next.value) && result.bytes == first.bytes;
    if (next.value == not_a_character || !(is_zero_width(next.value) || is_skin_tone(next.value) || joined || flag))
      break;
    joined = next.value == joiner && is_pictograph(first.value);
    if (next.value == emoji_presentation || flag) result.width = 2;
    result.bytes += next.bytes;
  }
  return result;
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool steers(char32_t c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0) || (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069) ||
         (c & 0xFFFE) == 0xFFFE;
}

bool is_wide_comma(char32_t c) { return c == 0xFF0C || c == 0x3001 || c == 0xFF64; }

bool is_han_or_kana(char32_t c) {
  static constexpr Range ranges[] = {
      {0x2E80, 0x2FD5},                                        // radicals
      {0x3001, 0x30FF},                                        // punctuation, Hiragana, Katakana
      {0x31F0, 0x31FF},                                        // small Katakana
      {0x3400, 0x4DBF},                                        // Han
      {0x4E00, 0x9FFF},                                        // Han
      {0xF900, 0xFAFF},                                        // Han
      {0xFE30, 0xFE4F},                                        // punctuation of vertical text
      {0xFF01, 0xFF0F},                                        // full-width punctuation; so are the next ones
      {0xFF1A, 0xFF20},   {0xFF3B, 0xFF40}, {0xFF5B, 0xFF9F},  // and half-width Katakana
      {0x1AFF0, 0x1B16F},                                      // historic Kana
      {0x20000, 0x3FFFD},                                      // Han
  };
  return within(ranges, c);
}

bool is_zero_width(char32_t c) { return within(zero_width_ranges, c); }
bool is_wide(char32_t c) { return within(wide_ranges, c); }

std::optional<std::size_t> invalid_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    if (c.value == not_a_character) return at;
    at += c.bytes;
  }
  return std::nullopt;
}

void check_utf8(const char* function, std::string_view text) {
  if (const auto at = invalid_utf8(text))
    throw ValueError(runtime::format("{}: byte 0x{:02X} at offset {} is not UTF-8", function,
                                     static_cast<unsigned char>(text[*at]), *at));
}

}  // namespace attn::text
