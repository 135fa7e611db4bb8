// src/text/tokenizer/rewritten.cc: makes a new text from the characters of an old one.
#include "text/tokenizer/rewritten.h"

#include "text/tokenizer/nfc.h"

namespace attn::text {

Rewriter::Rewriter(const Rewritten& from, std::size_t skipped) : taken_(skipped) {
  for (std::size_t at = 0; at < from.first; at += code_point_at(from.text, at).bytes) ++first_characters_;
  result_.text.reserve(from.text.size());
}

void Rewriter::add(char32_t c, int change) {
  // An inserted character has the origin of the character before it.
  const std::size_t stands_for = change > 0 && taken_ > 0 ? taken_ - 1 : taken_;
  if (change <= 0) taken_ += static_cast<std::size_t>(1 - change);
  append(result_.text, c);
  at_first_ = at_first_ && stands_for < first_characters_;
  if (at_first_) result_.first = result_.text.size();
}

}  // namespace attn::text
