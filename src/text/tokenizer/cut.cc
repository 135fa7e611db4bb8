// src/text/tokenizer/cut.cc: implements the patterns of GPT-2, Llama 3, GPT-4o, Mistral and others without regular
// expressions: tries the alternatives of a pattern in order, as a regular expression does.
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
  if (!text.substr(at).starts_with('\'')) return 0;
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

/// Matches what follows the words in the patterns since Llama 3: at most `most_digits` digits; a space or none and
/// signs, with the characters of `tail` after them; blanks up to their last line end, else as in blanks_end.
std::size_t no_word_end(std::string_view text, std::size_t at, std::size_t most_digits, std::string_view tail) {
  if (look(text, at).kind == Class::number) return run_end(text, at, Class::number, most_digits);
  const std::size_t start = at + (text[at] == ' ');
  if (look(text, start).kind == Class::sign)
    return std::min(text.find_first_not_of(tail, run_end(text, start, Class::sign)), text.size());
  const std::size_t end = run_end(text, at, Class::blank);
  const std::size_t line_end = text.substr(at, end - at).find_last_of("\r\n");
  return line_end != std::string_view::npos ? at + line_end + 1 : blanks_end(text, at);
}

/// Returns where the letters of a word may begin: after a sign or blank that is not a line end, else at `at`.
std::size_t word_start(const Seen& first, std::size_t at) {
  const bool may_precede = first.kind == Class::sign || first.kind == Class::blank;
  return may_precede && !is_line_end(first.value) ? at + first.bytes : at;
}

std::size_t llama3_end(std::string_view text, std::size_t at, std::size_t most_digits) {
  if (const std::size_t length = contraction(text, at, true)) return at + length;
  const std::size_t start = word_start(look(text, at), at), end = run_end(text, start, Class::letter);
  return end > start ? end : no_word_end(text, at, most_digits, "\r\n");
}

/// Which part of a word a character may belong to: the first, of upper case, or the second, of lower case. Marks and
/// letters without case (Lm, Lo) belong to either.
enum class Case { none, upper, lower, either };

Case case_of(const Seen& c) {
  if (c.kind != Class::letter) return c.kind == Class::sign && within(mark_ranges, c.value) ? Case::either : Case::none;
  if (c.value < 128) return c.value < 'a' ? Case::upper : Case::lower;
  if (within(upper_ranges, c.value)) return Case::upper;
  if (within(lower_ranges, c.value)) return Case::lower;
  if (within(even_upper_ranges, c.value)) return c.value % 2 == 0 ? Case::upper : Case::lower;
  if (within(odd_upper_ranges, c.value)) return c.value % 2 == 1 ? Case::upper : Case::lower;
  return Case::either;
}

/// Returns the end of the letters and marks of a word at `at`, or `at` if there are none. If no lower case follows the
/// upper case, the word ends after the last character that may be of lower case, if there is one.
std::size_t cased_end(std::string_view text, std::size_t at) {
  std::size_t end = at, either = at;
  Seen next = look(text, at);
  Case part = case_of(next);
  const auto step = [&] {
    end += next.bytes;
    next = look(text, end);
    part = case_of(next);
  };
  while (part == Case::upper || part == Case::either) {
    const bool may_be_lower = part == Case::either;
    step();
    if (may_be_lower) either = end;
  }
  if (part != Case::lower) return either > at ? either : end;
  while (part == Case::lower || part == Case::either) step();
  return end;
}

/// o200k's piece, and without `contractions` tekken's.
std::size_t o200k_end(std::string_view text, std::size_t at, std::size_t most_digits, bool contractions) {
  const Seen first = look(text, at);
  // A mark is in a word, never before it: the alternative that has it before upper case is tried last.
  const std::size_t start = case_of(first) == Case::none ? word_start(first, at) : at, end = cased_end(text, start);
  if (end == start) return no_word_end(text, at, most_digits, "\r\n/");
  return contractions ? end + contraction(text, end, true) : end;
}

/// Returns the end of gpt2's piece in the text before the next character for which `stop` is true, as if the text ended
/// there; the character at `at` is none.
template <typename Stop>
std::size_t gpt2_end_before(std::string_view text, std::size_t at, Stop&& stop) {
  const std::size_t end = gpt2_end(text, at);
  std::size_t next = at;
  // Blanks after a piece belong to it if the text ends after them.
  for (Seen c = look(text, next); c.bytes > 0 && !stop(c) && (next < end || c.kind == Class::blank);
       c = look(text, next))
    next += c.bytes;
  const Seen c = look(text, next);
  return c.bytes > 0 && stop(c) ? gpt2_end(text.substr(0, next), at) : end;
}

bool is_number(const Seen& c) { return c.kind == Class::number; }

std::size_t digits_end(std::string_view text, std::size_t at) {
  const Seen first = look(text, at);
  return is_number(first) ? at + first.bytes : gpt2_end_before(text, at, is_number);
}

bool is_punctuation(const Seen& c) {
  return c.value < 128 ? std::string_view("!\"#$%&'()*+,-./:;<=>?@[\\]^_{|}~").find(static_cast<char>(c.value)) !=
                             std::string_view::npos
                       : within(punctuation_ranges, c.value);
}

/// Returns whether three digits of ASCII are at `at`.
bool three_digits(std::string_view text, std::size_t at) {
  const auto digit = [&](std::size_t i) { return i < text.size() && text[i] >= '0' && text[i] <= '9'; };
  return digit(at) && digit(at + 1) && digit(at + 2);
}

std::size_t punctuation_end(std::string_view text, std::size_t at) {
  Seen next = look(text, at);
  std::size_t end = at;
  if (is_punctuation(next)) {
    for (; next.bytes > 0 && is_punctuation(next); next = look(text, end)) end += next.bytes;
    return end;
  }
  if (is_number(next)) {
    if (three_digits(text, at)) return at + 3;
    for (; next.bytes > 0 && is_number(next) && !three_digits(text, end); next = look(text, end)) end += next.bytes;
    return end;
  }
  // A number is a piece without the space before it.
  const std::size_t whole = gpt2_end_before(text, at, is_punctuation);
  return text[at] == ' ' && is_number(look(text, at + 1)) && whole > at + 1 ? at + 1 : whole;
}

// The ranges of the letters for which is_han_or_kana is true, for use inside the brackets of a regular expression.
#define ATTN_ALONE                                                                           \
  R"(\x{3005}-\x{3006}\x{3031}-\x{3035}\x{303B}-\x{303C}\x{3041}-\x{30FF})"                  \
  R"(\x{31F0}-\x{31FF}\x{3400}-\x{4DBF}\x{4E00}-\x{9FFF}\x{F900}-\x{FAFF}\x{FF66}-\x{FF9F})" \
  R"(\x{1AFF0}-\x{1B16F}\x{20000}-\x{3FFFD})"

constexpr std::string_view kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kCharacters[] = {R"([\s\S])"}, kGpt2Alone[] = {kGpt2};
constexpr std::string_view kWords[] = {R"('s|'t|'re|'ve|'m|'ll|'d|(?=\p{L})[)" ATTN_ALONE R"(]| ?(?:(?![)" ATTN_ALONE
                                       R"(])\p{L})+)"
                                       R"(| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"};
constexpr std::string_view kLlama3[] = {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
                                        R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::string_view kQwen2[] = {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
                                       R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::string_view kO200k[] = {
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::string_view kTekken[] = {
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::string_view kDigits[] = {R"(\p{N})", kGpt2};
// Of llama.cpp, for models whose pre-tokenizer it does not know.
constexpr std::string_view kPunctuation[] = {
    R"([\p{P}\$\+<=>\^~\|]+)", R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))", R"(\p{N}+)",
    R"([0-9][0-9][0-9])"};

struct Patterns {
  Cut cut;
  std::span<const std::string_view> steps;
};
constexpr Patterns kPatterns[] = {
    {Cut::characters, kCharacters}, {Cut::gpt2, kGpt2Alone}, {Cut::words, kWords},
    {Cut::llama3, kLlama3},         {Cut::qwen2, kQwen2},    {Cut::o200k, kO200k},
    {Cut::tekken, kTekken},         {Cut::digits, kDigits},  {Cut::punctuation, kPunctuation},
};
#undef ATTN_ALONE

}  // namespace

std::span<const std::string_view> patterns_of(Cut cut) { return kPatterns[static_cast<std::size_t>(cut)].steps; }

std::optional<Cut> cut_of(std::span<const std::string_view> patterns) {
  for (const auto& [cut, steps] : kPatterns)
    if (std::equal(patterns.begin(), patterns.end(), steps.begin(), steps.end())) return cut;
  return std::nullopt;
}

std::size_t piece_end(Cut cut, std::string_view text, std::size_t at, std::string_view separator) {
  switch (cut) {
    case Cut::characters: return at + code_point_at(text, at).bytes;
    case Cut::gpt2: return gpt2_end(text, at);
    case Cut::words: return words_end(text, at);
    case Cut::llama3: return llama3_end(text, at, 3);
    case Cut::qwen2: return llama3_end(text, at, 1);
    case Cut::o200k: return o200k_end(text, at, 3, true);
    case Cut::tekken: return o200k_end(text, at, 1, false);
    case Cut::digits: return digits_end(text, at);
    case Cut::punctuation: return punctuation_end(text, at);
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
