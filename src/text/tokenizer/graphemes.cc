// src/text/tokenizer/graphemes.cc: implements the rules of grapheme clusters of Unicode Standard Annex 29.
#include "text/tokenizer/graphemes.h"

#include "text/tokenizer/unicode_graphemes.h"
#include "text/unicode.h"

#include <algorithm>
#include <iterator>

namespace attn::text {
namespace {

using enum GraphemeKind;

constexpr char32_t syllables = 0xAC00, syllable_count = 11172, tail_count = 28, non_joiner = 0x200C;

GraphemeKind kind_of(char32_t c) {
  if (const char32_t at = c - syllables; c >= syllables && at < syllable_count)
    return at % tail_count == 0 ? syllable : whole_syllable;
  const auto before = [](char32_t value, const GraphemeRange& range) { return value < range.first; };
  const GraphemeRange* after = std::upper_bound(std::begin(grapheme_ranges), std::end(grapheme_ranges), c, before);
  if (after == std::begin(grapheme_ranges)) return other;
  const GraphemeRange& range = *std::prev(after);
  return c - range.first < range.count ? range.kind : other;
}

bool is_one_of(GraphemeKind kind, std::initializer_list<GraphemeKind> kinds) {
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

}  // namespace

std::size_t grapheme_end(std::string_view text, std::size_t at) {
  CodePoint c = code_point_at(text, at);
  at += c.bytes;
  const auto next_is_plain = [&] { return at == text.size() || (text[at] >= 0x20 && text[at] < 0x7F); };
  if (c.value >= 0x20 && c.value < 0x7F && next_is_plain()) return at;
  if (c.value == '\r') return at < text.size() && text[at] == '\n' ? at + 1 : at;
  GraphemeKind before = kind_of(c.value);
  if (before == control) return at;
  // Whether the cluster so far ends with a picture, marks and a joiner; with a consonant and marks that link to another
  // one; with an odd number of halves of a flag.
  bool picture_marks = before == picture, picture_joins = false, consonant_marks = before == consonant, links = false,
       half_flag = before == flag_half;
  while (at < text.size()) {
    c = code_point_at(text, at);
    const GraphemeKind next = kind_of(c.value);
    const bool goes_on = is_one_of(next, {extend, linker, joiner, spacing}) || (before == prepend && next != control) ||
                         (before == lead && is_one_of(next, {lead, vowel, syllable, whole_syllable})) ||
                         (is_one_of(before, {vowel, syllable}) && is_one_of(next, {vowel, tail})) ||
                         (is_one_of(before, {tail, whole_syllable}) && next == tail) ||
                         (next == picture && picture_joins) || (next == consonant && consonant_marks && links) ||
                         (next == flag_half && half_flag);
    if (!goes_on) break;
    picture_joins = picture_marks && next == joiner;
    picture_marks = next == picture || (picture_marks && is_one_of(next, {extend, linker}));
    links = next != consonant && (links || next == linker);
    consonant_marks =
        next == consonant || (consonant_marks && c.value != non_joiner && is_one_of(next, {extend, linker, joiner}));
    half_flag = next == flag_half && !half_flag;
    before = next;
    at += c.bytes;
  }
  return at;
}

}  // namespace attn::text
