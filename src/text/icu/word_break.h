// src/text/icu/word_break.h: splits text of languages that put no spaces between words, with ICU's dictionaries.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace attn::text {

/// Returns the words of a UTF-8 text by the rules of `locale` ("zh", "ja", "th", "" for the default). White space and
/// commas between words are left out; unlike in `split`, other punctuation is a word of its own. Throws ValueError if
/// the text is not UTF-8.
std::vector<std::string> icu_words(std::string_view text, const std::string& locale);

}  // namespace attn::text
