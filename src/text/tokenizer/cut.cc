// src/text/tokenizer/cut.cc: implements the patterns of GPT-2, Llama 3, Qwen 2 and `words` without regular expressions:
// tries the alternatives of a pattern in order, as a regular expression does.
#include "text/tokenizer/cut.h"

#include "runtime/once.h"
#include "text/tokenizer/unicode_classes.h"
#include "text/unicode.h"

#include <algorithm>
#include <array>
#include <utility>

namespace attn::text {
namespace {

enum class Class { letter, number, blank, sign };

/// Returns whether c matches \s in the patterns, which is the property White_Space. is_space differs: it is Python's
/// white space, which also has the separators 0x1C to 0x1F.
bool is_blank(char32_t c) { return is_space(c) && !(c >= 0x1C && c <= 0x1F); }

Class class_of_code_point(char32_t c) {
  if (is_blank(c)) return Class::blank;
  if (within(letter_ranges, c)) return Class::letter;
  return within(number_ranges, c) ? Class::number : Class::sign;
}

Class class_of(char32_t c) {
  constinit static runtime::Once<std::array<Class, 128>> ascii;
  const auto make = [] {
    std::array<Class, 128> table{};
    for (char32_t i = 0; i < 128; ++i) table[i] = class_of_code_point(i);
    return table;
  };
  return c < 128 ? ascii.get(make)[c] : class_of_code_point(c);
}

/// A code point with its class. At the end of the text it has 0 bytes and counts as a blank.
struct Seen {
  Class kind;
  char32_t value;
  std::size_t bytes;
};
Seen look(std::string_view text, std::size_t at) {
  if (at >= text.size()) return {Class::blank, 0, 0};
  const CodePoint c = code_point_at(text, at);
  return {class_of(c.value), c.value, c.bytes};
}

/// Returns the end of the run of characters of class `kind` that begins at `at` and has at most `most` characters.
std::size_t run_end(std::string_view text, std::size_t at, Class kind, std::size_t most = std::string_view::npos) {
  for (; most > 0; --most) {
    const Seen next = look(text, at);
    if (next.bytes == 0 || next.kind != kind) break;
    at += next.bytes;
  }
  return at;
}

/// Returns the length of '(s|t|re|ve|m|ll|d) at `at`, or 0 if there is none. With `fold`, upper and lower case match,
/// and the long s (U+017F) is also an s.
std::size_t contraction(std::string_view text, std::size_t at, bool fold) {
  if (text[at] != '\'') return 0;
  const auto letter = [&](std::size_t i) -> char {
    if (i >= text.size()) return 0;
    const char c = text[i];
    return fold && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  const char first = letter(at + 1), second = letter(at + 2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if ((second == 'e' && (first == 'r' || first == 'v')) || (first == 'l' && second == 'l')) return 3;
  return fold && text.substr(at + 1, 2) == "\xC5\xBF" ? 3 : 0;
}

/// Matches \s+(?!\S)|\s+ and returns the end of the match: the last blank goes with the next piece, unless it is the
/// only one or the text ends after it.
std::size_t blanks_end(std::string_view text, std::size_t at) {
  std::size_t last = at, end = at;
  for (Seen next = look(text, at); next.bytes > 0 && next.kind == Class::blank; next = look(text, end)) {
    last = end;
    end += next.bytes;
  }
  return end == text.size() || last == at ? end : last;
}

std::size_t gpt2_end(std::string_view text, std::size_t at) {
  if (const std::size_t length = contraction(text, at, false)) return at + length;
  const std::size_t start = at + (text[at] == ' ');
  const Seen first = look(text, start);
  return first.kind == Class::blank ? blanks_end(text, at) : run_end(text, start, first.kind);
}

/// Returns whether c is a Chinese or Japanese letter, which is a piece of its own.
bool stands_alone(const Seen& c) { return c.kind == Class::letter && is_han_or_kana(c.value); }

std::size_t words_end(std::string_view text, std::size_t at) {
  if (const std::size_t length = contraction(text, at, false)) return at + length;
  if (const Seen first = look(text, at); stands_alone(first)) return at + first.bytes;
  const std::size_t start = at + (text[at] == ' ');
  Seen next = look(text, start);
  if (stands_alone(next)) return start;  // this piece is only the blank before the letter
  if (next.kind != Class::letter) return gpt2_end(text, at);
  std::size_t end = start;
  for (; next.bytes > 0 && next.kind == Class::letter && !stands_alone(next); next = look(text, end)) end += next.bytes;
  return end;
}

bool is_line_end(char32_t c) { return c == '\r' || c == '\n'; }

std::size_t llama3_end(std::string_view text, std::size_t at, std::size_t most_digits) {
  if (const std::size_t length = contraction(text, at, true)) return at + length;
  const Seen first = look(text, at);
  if (first.kind == Class::number) return run_end(text, at, Class::number, most_digits);
  if (first.kind == Class::letter) return run_end(text, at, Class::letter);
  if (!is_line_end(first.value) && look(text, at + first.bytes).kind == Class::letter)
    return run_end(text, at + first.bytes, Class::letter);
  const std::size_t start = at + (text[at] == ' ');
  if (look(text, start).kind == Class::sign) {
    std::size_t end = run_end(text, start, Class::sign);
    while (end < text.size() && is_line_end(static_cast<unsigned char>(text[end]))) ++end;
    return end;
  }
  const std::size_t end = run_end(text, at, Class::blank);
  const std::size_t line_end = text.substr(at, end - at).find_last_of("\r\n");
  return line_end != std::string_view::npos ? at + line_end + 1 : blanks_end(text, at);
}

// The ranges of the letters for which is_han_or_kana is true, for use inside the brackets of a regular expression.
#define ATTN_ALONE                                                                           \
  R"(\x{3005}-\x{3006}\x{3031}-\x{3035}\x{303B}-\x{303C}\x{3041}-\x{30FF})"                  \
  R"(\x{31F0}-\x{31FF}\x{3400}-\x{4DBF}\x{4E00}-\x{9FFF}\x{F900}-\x{FAFF}\x{FF66}-\x{FF9F})" \
  R"(\x{1AFF0}-\x{1B16F}\x{20000}-\x{3FFFD})"

constexpr std::pair<Cut, std::string_view> kPatterns[] = {
    {Cut::characters, R"([\s\S])"},
    {Cut::gpt2, R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {Cut::words, R"('s|'t|'re|'ve|'m|'ll|'d|(?=\p{L})[)" ATTN_ALONE R"(]| ?(?:(?![)" ATTN_ALONE R"(])\p{L})+)"
                 R"(| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {Cut::llama3, R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
                  R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {Cut::qwen2, R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
                 R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
};
#undef ATTN_ALONE

}  // namespace

std::string_view pattern_of(Cut cut) { return kPatterns[static_cast<std::size_t>(cut)].second; }

std::optional<Cut> cut_of(std::string_view pattern) {
  for (const auto& [cut, known] : kPatterns)
    if (pattern == known) return cut;
  return std::nullopt;
}

std::size_t piece_end(Cut cut, std::string_view text, std::size_t at, std::string_view separator) {
  switch (cut) {
    case Cut::characters: return at + code_point_at(text, at).bytes;
    case Cut::gpt2: return gpt2_end(text, at);
    case Cut::words: return words_end(text, at);
    case Cut::llama3: return llama3_end(text, at, 3);
    case Cut::qwen2: return llama3_end(text, at, 1);
    case Cut::whole: return text.size();
    case Cut::before:
      return std::min(text.find(separator, text.substr(at).starts_with(separator) ? at + separator.size() : at),
                      text.size());
    case Cut::after:
      if (const std::size_t found = text.find(separator, at); found != std::string_view::npos)
        return found + separator.size();
  }
  return text.size();
}

}  // namespace attn::text
