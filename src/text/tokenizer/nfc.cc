// src/text/tokenizer/nfc.cc: normalizes text to Unicode's forms: decomposes characters, sorts their combining marks,
// and composes them again.
#include "text/tokenizer/nfc.h"

#include "text/tokenizer/unicode_composition.h"
#include "text/tokenizer/unicode_marks.h"
#include "text/unicode.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <unordered_map>
#include <vector>

namespace attn::text {
namespace {

// U+0300 is the first combining mark; a character below it changes only if a mark follows
constexpr char32_t first_mark = 0x300;
// The first byte of U+0300 in UTF-8; later characters have the same first byte or a higher one.
constexpr unsigned char first_byte_of_marks = 0xCC;
constexpr char32_t byte_at = 0x110000;  // added to a byte that is not UTF-8, which counts as a character of its own
// Hangul syllables are composed by arithmetic from a lead, a vowel and a tail; tail 0 means no tail.
constexpr char32_t syllables = 0xAC00, leads = 0x1100, vowels = 0x1161, tails = 0x11A7;
constexpr char32_t lead_count = 19, vowel_count = 21, tail_count = 28,
                   syllable_count = lead_count * vowel_count * tail_count;

int order_of(char32_t c) {
  if (c < first_mark) return 0;
  const auto before = [](char32_t value, const MarkClass& marks) { return value < marks.first; };
  const MarkClass* after = std::upper_bound(std::begin(mark_classes), std::end(mark_classes), c, before);
  return after != std::begin(mark_classes) && c <= std::prev(after)->last ? std::prev(after)->order : 0;
}

template <std::size_t n>
const Composition* find(const Composition (&table)[n], char32_t c) {
  const Composition* at =
      std::lower_bound(std::begin(table), std::end(table), c,
                       [](const Composition& entry, char32_t value) { return entry.whole < value; });
  return at != std::end(table) && at->whole == c ? at : nullptr;
}

void take_apart(char32_t c, std::vector<Part>& parts) {
  if (const char32_t at = c - syllables; c >= syllables && at < syllable_count) {
    parts.push_back({leads + at / (vowel_count * tail_count), 0, 1});
    parts.push_back({vowels + at % (vowel_count * tail_count) / tail_count, 0, 1});
    if (at % tail_count != 0) parts.push_back({tails + at % tail_count, 0, 1});
    return;
  }
  const Composition* pair = c < 0x80 ? nullptr : find(compositions, c);
  if (pair == nullptr && c >= 0x80) pair = find(decompositions, c);
  if (pair == nullptr) return parts.push_back({c, order_of(c), 1});
  take_apart(pair->first, parts);
  if (pair->second != 0) take_apart(pair->second, parts);
}

/// Returns the character that the two compose to; 0: none.
char32_t together(char32_t first, char32_t second) {
  if (first >= leads && first < leads + lead_count && second >= vowels && second < vowels + vowel_count)
    return syllables + ((first - leads) * vowel_count + (second - vowels)) * tail_count;
  if (first >= syllables && first < syllables + syllable_count && (first - syllables) % tail_count == 0 &&
      second > tails && second < tails + tail_count)
    return first + (second - tails);
  const auto key = [](char32_t a, char32_t b) { return static_cast<std::uint64_t>(a) << 32 | b; };
  static const auto wholes = [&] {
    std::unordered_map<std::uint64_t, char32_t> result;
    for (const Composition& c : compositions) result.emplace(key(c.first, c.second), c.whole);
    return result;
  }();
  const auto found = wholes.find(key(first, second));
  return found == wholes.end() ? 0 : found->second;
}

}  // namespace

void append(std::string& text, char32_t c) {
  const auto byte = [&](char32_t value) { text += static_cast<char>(static_cast<unsigned char>(value)); };
  const auto rest = [&](int shift) { byte(0x80 | (c >> shift & 0x3F)); };
  if (c >= byte_at) return byte(c - byte_at);
  if (c < 0x80) return byte(c);
  if (c < 0x800) return byte(0xC0 | c >> 6), rest(0);
  if (c < 0x10000) return byte(0xE0 | c >> 12), rest(6), rest(0);
  byte(0xF0 | c >> 18), rest(12), rest(6), rest(0);
}

std::vector<Part> decomposed(std::string_view text, FullParts* full) {
  std::vector<Part> parts;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    const std::u16string_view all = full == nullptr || c.value < 0x80 ? std::u16string_view() : full(c.value);
    const std::size_t first = parts.size();
    for (const char32_t part : all) parts.push_back({part, order_of(part), 1});
    if (all.empty())
      take_apart(c.value != not_a_character ? c.value : byte_at + static_cast<unsigned char>(text[at]), parts);
    parts[first].change = 0;
    at += c.bytes;
  }

  // Sorts each run of marks by their combining classes.
  for (auto at = parts.begin(); at != parts.end();) {
    const auto end = std::find_if(at, parts.end(), [](const Part& p) { return p.order == 0; });
    std::stable_sort(at, end, [](const Part& a, const Part& b) { return a.order < b.order; });
    at = end == parts.end() ? end : std::next(end);
  }
  return parts;
}

void compose(std::vector<Part>& parts) {
  // Composes each part with the last character before it that is not a mark, unless between the two there is a mark of
  // the same or a higher class.
  std::size_t kept = 0, base = parts.size();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Part part = parts[i];
    const bool beside = kept == base + 1;
    if (base < kept && (beside || parts[kept - 1].order < part.order))
      if (const char32_t whole = together(parts[base].value, part.value)) {
        parts[base].value = whole;
        parts[base].change += part.change - 1;
        continue;
      }
    if (part.order == 0) base = kept;
    parts[kept++] = part;
  }
  parts.resize(kept);
}

std::string nfc(std::string_view text) {
  if (std::all_of(text.begin(), text.end(),
                  [](char byte) { return static_cast<unsigned char>(byte) < first_byte_of_marks; }))
    return std::string(text);
  std::vector<Part> parts = decomposed(text, nullptr);
  compose(parts);
  std::string result;
  for (const Part& part : parts) append(result, part.value);
  return result;
}

}  // namespace attn::text
