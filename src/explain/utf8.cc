// src/explain/utf8.cc: terminal columns of UTF-8 text.
#include "explain/utf8.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace attn::explain_detail {
namespace {

constexpr char32_t kReplacement = 0xFFFD;

struct Range {
  char32_t first, last;
};

// Unicode 15: East Asian Width W and F, joined where only unassigned characters lie between, and emoji shown wide.
constexpr std::array<Range, 21> kWide{{{0x1100, 0x115F},   {0x231A, 0x231B},   {0x23E9, 0x23EC},   {0x2E80, 0x303E},   {0x3041, 0x33FF},
                                       {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xA000, 0xA4CF},   {0xA960, 0xA97F},   {0xAC00, 0xD7A3},
                                       {0xF900, 0xFAFF},   {0xFE10, 0xFE19},   {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},   {0xFFE0, 0xFFE6},
                                       {0x16FE0, 0x18DFF}, {0x1AFF0, 0x1B2FF}, {0x1F300, 0x1F64F}, {0x1F680, 0x1F6FF}, {0x1F900, 0x1FAFF},
                                       {0x20000, 0x3FFFD}}};
// Combining marks, joiners, variation selectors.
constexpr std::array<Range, 16> kZero{{{0x0300, 0x036F}, {0x0483, 0x0489}, {0x0591, 0x05BD}, {0x0610, 0x061A},
                                       {0x064B, 0x065F}, {0x0900, 0x0902}, {0x093C, 0x093C}, {0x0941, 0x0948},
                                       {0x0E31, 0x0E31}, {0x0E34, 0x0E3A}, {0x0E47, 0x0E4E}, {0x200B, 0x200F},
                                       {0x20D0, 0x20FF}, {0x302A, 0x302D}, {0xFE00, 0xFE0F}, {0xE0100, 0xE01EF}}};

template <std::size_t N>
bool within(const std::array<Range, N>& ranges, char32_t character) {
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), character, [](char32_t c, const Range& r) { return c < r.first; });
  return after != ranges.begin() && character <= std::prev(after)->last;
}

int width_of(char32_t character) {
  if (within(kZero, character)) return 0;
  return within(kWide, character) ? 2 : 1;
}

/// The character at `at`, which moves behind it; malformed bytes give U+FFFD one by one.
char32_t next(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t first = byte(at++);
  if (first < 0x80) return first;
  const int more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
  if (first < 0xC2 || first > 0xF4 || at + static_cast<std::size_t>(more) > text.size()) return kReplacement;
  char32_t character = first & (0x3F >> more);
  for (int i = 0; i < more; ++i) {
    const std::uint8_t tail = byte(at + static_cast<std::size_t>(i));
    if ((tail & 0xC0) != 0x80) return kReplacement;
    character = character << 6 | (tail & 0x3F);
  }
  constexpr std::array<char32_t, 4> smallest{0, 0x80, 0x800, 0x10000};
  if (character < smallest[static_cast<std::size_t>(more)] || character > 0x10FFFF || (character >= 0xD800 && character <= 0xDFFF)) return kReplacement;
  at += static_cast<std::size_t>(more);
  return character;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t from = at;
    const char32_t character = next(text, at);
    const bool control = character < 0x20 || (character >= 0x7F && character < 0xA0) || (character >= 0x202A && character <= 0x202E) ||
                         (character >= 0x2066 && character <= 0x2069) || character >= 0xFFFFE || (character & 0xFFFE) == 0xFFFE;
    if (control || character == kReplacement)
      result += "\xEF\xBF\xBD";
    else
      result += text.substr(from, at - from);
  }
  return result;
}

int display_width(std::string_view text) {
  int width = 0;
  for (std::size_t at = 0; at < text.size();) width += width_of(next(text, at));
  return width;
}

std::string cut(std::string_view text, int width) {
  if (display_width(text) <= width) return std::string(text);
  int used = 0;
  std::size_t end = 0;
  for (std::size_t at = 0; at < text.size();) {
    used += width_of(next(text, at));
    if (used > width - 1) break;
    end = at;
  }
  return width < 1 ? std::string() : std::string(text.substr(0, end)) + "…";
}

std::string pad_left(std::string_view text, int width) {
  return std::string(static_cast<std::size_t>(std::max(0, width - display_width(text))), ' ') + std::string(text);
}

std::string pad_right(std::string_view text, int width) {
  return std::string(text) + std::string(static_cast<std::size_t>(std::max(0, width - display_width(text))), ' ');
}

}  // namespace attn::explain_detail
