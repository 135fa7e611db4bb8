// src/explain/words.cc: finds a phrase in the table of a language.
#include "explain/words.h"

#include <algorithm>

namespace attn::explain_detail {

std::string_view say(Language language, Phrase phrase) {
  const char* words = language == Language::zh ? words_zh() : words_en();
  for (int n = 0; n < static_cast<int>(phrase); ++n) words += std::string_view(words).size() + 1;
  return words;
}

Phrase phrase_of_check(const std::string& step, bool same) {
  if (step == "alone") return same ? Phrase::same_bits : Phrase::other_bits;
  return same ? Phrase::still_same_bits : Phrase::changed_bits;
}

Phrase note_of_mask(const std::vector<Hidden>& hidden) {
  return std::find(hidden.begin(), hidden.end(), Hidden::causal) == hidden.end() ? Phrase::note_mask
                                                                                 : Phrase::note_mask_causal;
}

}  // namespace attn::explain_detail
