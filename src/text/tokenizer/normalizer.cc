// src/text/tokenizer/normalizer.cc: applies the steps of the normalizers of encoders' tokenizers.
#include "text/tokenizer/normalizer.h"

#include "text/tokenizer/nfc.h"
#include "text/tokenizer/unicode_compatibility.h"
#include "text/tokenizer/unicode_encoders.h"
#include "text/unicode.h"

#include <algorithm>
#include <iterator>

namespace attn::text {
namespace {

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

std::u16string_view full_parts(char32_t c) {
  const Compatibility* at =
      std::lower_bound(std::begin(compatibilities), std::end(compatibilities), c,
                       [](const Compatibility& entry, char32_t value) { return entry.whole < value; });
  if (at == std::end(compatibilities) || at->whole != c) return {};
  return std::u16string_view(compatibility_parts + at->first, at->count);
}

Rewritten in_form(const Rewritten& from, FullParts* full, bool composed) {
  if (is_ascii(from.text)) return from;
  std::vector<Part> parts = decomposed(from.text, full);
  if (composed) compose(parts);
  Rewriter rewriter(from);
  for (const Part& part : parts) rewriter.add(part.value, part.change);
  return rewriter.finish();
}

Rewritten cleaned(const Rewritten& from) {
  return mapped(from, [](char32_t c) {
    if (c >= 0x20 && c < 0x7F) return c;
    if (within(removed_ranges, c)) return not_a_character;
    return is_white_space(c) ? U' ' : c;
  });
}

// As Hugging Face's library has them: the blocks that BERT's authors name, the fifth without its first 256 characters.
bool is_han(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

Rewritten spaced(const Rewritten& from) {
  if (is_ascii(from.text)) return from;
  Rewriter rewriter(from);
  for (std::size_t at = 0; at < from.text.size();) {
    const CodePoint c = code_point_at(from.text, at);
    at += c.bytes;
    if (!is_han(c.value)) {
      rewriter.add(c.value, 0);
      continue;
    }
    rewriter.add(U' ', 0);
    rewriter.add(c.value, 1);
    rewriter.add(U' ', 1);
  }
  return rewriter.finish();
}

template <std::size_t n>
Rewritten without(const Range (&ranges)[n], const Rewritten& from) {
  if (is_ascii(from.text)) return from;
  return mapped(from, [&](char32_t c) { return within(ranges, c) ? not_a_character : c; });
}

char32_t lower_case(char32_t c) {
  const LowerCase* after = std::upper_bound(std::begin(lower_cases), std::end(lower_cases), c,
                                            [](char32_t value, const LowerCase& run) { return value < run.first; });
  if (after == std::begin(lower_cases)) return c;
  const LowerCase& run = *std::prev(after);
  const bool belongs = c <= run.last && (c - run.first) % static_cast<char32_t>(run.step) == 0;
  return belongs ? c + static_cast<char32_t>(run.offset) : c;
}

Rewritten lowered(const Rewritten& from) {
  Rewriter rewriter(from);
  for (std::size_t at = 0; at < from.text.size();) {
    const CodePoint c = code_point_at(from.text, at);
    at += c.bytes;
    // The one letter whose lower case is two characters: I with a dot.
    if (c.value == 0x130) rewriter.add(U'i', 0), rewriter.add(0x307, 1);
    else rewriter.add(lower_case(c.value), 0);
  }
  return rewriter.finish();
}

Rewritten replaced(const Rewritten& from, const Pattern& pattern, const std::string& by) {
  Rewritten result;
  bool first = true;
  // Unchanged parts keep their origin. An inserted text has the origin of the last byte that it replaces.
  const auto add = [&](std::string_view text, std::size_t of_first) {
    result.text += text;
    if (first) result.first += of_first;
    first = first && of_first == text.size();
  };
  for (std::size_t at = 0; at < from.text.size();) {
    const Pattern::Match match = pattern.find(from.text, at);
    const std::size_t before = match.begin - at, left = from.first > at ? from.first - at : 0;
    add(std::string_view(from.text).substr(at, before), std::min(before, left));
    if (match.begin == from.text.size()) break;
    add(by, match.end <= from.first ? by.size() : 0);
    at = match.end;
  }
  return result;
}

Rewritten prepended(const Rewritten& from, const std::string& text) {
  if (from.text.empty()) return from;
  return {text + from.text, from.first == 0 ? 0 : text.size() + from.first};
}

Rewritten stripped(const Rewritten& from, bool left, bool right) {
  std::size_t begin = from.text.size(), end = 0;
  for (std::size_t at = 0; at < from.text.size();) {
    const CodePoint c = code_point_at(from.text, at);
    if (!is_white_space(c.value)) {
      begin = std::min(begin, at);
      end = at + c.bytes;
    }
    at += c.bytes;
  }
  if (!left) begin = 0;
  if (!right) end = from.text.size();
  if (begin >= end) return {};
  const std::size_t first = from.first > begin ? from.first - begin : 0;
  return {from.text.substr(begin, end - begin), std::min(first, end - begin)};
}

Rewritten without_controls(const Rewritten& from) {
  return mapped(from, [](char32_t c) {
    if ((c >= 0x1 && c <= 0x8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F)
      return not_a_character;
    const bool blank = c == 0x9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
                       c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
    return blank ? U' ' : c;
  });
}

Rewritten after(const NormalizerStep& step, const Rewritten& text) {
  using enum NormalizerStep::Kind;
  switch (step.kind) {
    case clean: return cleaned(text);
    case space_han: return spaced(text);
    case remove_accents: return without(accent_ranges, in_form(text, nullptr, false));
    case lowercase: return lowered(text);
    case nfc: return in_form(text, nullptr, true);
    case nfd: return in_form(text, nullptr, false);
    case nfkc: return in_form(text, full_parts, true);
    case nfkd: return in_form(text, full_parts, false);
    case remove_marks: return without(removed_mark_ranges, text);
    case replace: return replaced(text, step.pattern, step.text);
    case prepend: return prepended(text, step.text);
    case strip: return stripped(text, step.left, step.right);
    case charsmap: return step.map->applied(text);
    case nmt: return without_controls(text);
  }
  return text;
}

}  // namespace

Rewritten normalized(const std::vector<NormalizerStep>& steps, Rewritten text) {
  for (const NormalizerStep& step : steps) text = after(step, text);
  return text;
}

}  // namespace attn::text
