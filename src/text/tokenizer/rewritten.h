// src/text/tokenizer/rewritten.h: a text that the steps of a normalizer change, and how much of it stems from the first
// character.
#pragma once
#include "text/unicode.h"

#include <cstddef>
#include <string>
#include <utility>

namespace attn::text {

/// A text while a normalizer and a pre-tokenizer change it.
struct Rewritten {
  std::string text;
  /// How many bytes at the begin come from the first character of the complete text; 0: this part is not the first. A
  /// Metaspace step whose scheme is "first" needs it.
  std::size_t first = 0;
};

/// Makes a new text from the characters of an old one, as Hugging Face's NormalizedString::transform does, and counts
/// which character of the old one each new one comes from.
class Rewriter {
 public:
  /// The first `skipped` characters are left out.
  explicit Rewriter(const Rewritten& from, std::size_t skipped = 0);

  /// Adds a character. `change` 0: it replaces the next old one; -n: and the n old ones after that are left out; 1: it
  /// is inserted.
  void add(char32_t c, int change);
  /// Leaves out the next characters of the old text. As in Hugging Face's library they count as left out only after a
  /// character that was added.
  void leave_out(std::size_t count) { taken_ += result_.text.empty() ? 0 : count; }
  Rewritten finish() { return std::move(result_); }

 private:
  std::size_t first_characters_ = 0;  // of the old text, those that stem from the first one of the whole
  std::size_t taken_;                 // characters of the old text that have been replaced or left out
  bool at_first_ = true;
  Rewritten result_;
};

/// Returns the text with each character replaced by to(character); not_a_character leaves it out.
template <typename To>
Rewritten mapped(const Rewritten& from, To&& to) {
  std::size_t at = 0;
  /// Returns the next character that stays; counts those before it that do not.
  const auto next = [&](int& left_out) {
    while (at < from.text.size()) {
      const CodePoint c = code_point_at(from.text, at);
      at += c.bytes;
      if (const char32_t kept = to(c.value); kept != not_a_character) return kept;
      ++left_out;
    }
    return not_a_character;
  };
  int skipped = 0;
  char32_t kept = next(skipped);
  Rewriter rewriter(from, static_cast<std::size_t>(skipped));
  while (kept != not_a_character) {
    int left_out = 0;
    const char32_t after = next(left_out);
    rewriter.add(kept, -left_out);
    kept = after;
  }
  return rewriter.finish();
}

}  // namespace attn::text
