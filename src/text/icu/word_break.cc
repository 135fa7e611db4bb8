// src/text/icu/word_break.cc: finds the word boundaries of a UTF-8 text with ICU, without converting the text to
// UTF-16.
#include "text/icu/word_break.h"

#include <attn/error.h>
#include <unicode/brkiter.h>
#include <unicode/utext.h>

#include "text/unicode.h"

#include <memory>

namespace attn::text {
namespace {

void check(UErrorCode status, const char* what) {
  if (U_FAILURE(status)) throw Error(std::string("icu_words: ") + what + ": " + u_errorName(status));
}

bool is_left_out(std::string_view word) {
  for (std::size_t at = 0; at < word.size();) {
    const CodePoint c = code_point_at(word, at);
    if (!is_space(c.value) && !is_wide_comma(c.value) && c.value != ',') return false;
    at += c.bytes;
  }
  return true;
}

}  // namespace

std::vector<std::string> icu_words(std::string_view text, const std::string& locale) {
  check_utf8("icu_words", text);
  UErrorCode status = U_ZERO_ERROR;
  const icu::Locale language = locale.empty() ? icu::Locale::getDefault() : icu::Locale(locale.c_str());
  const std::unique_ptr<icu::BreakIterator> boundaries(icu::BreakIterator::createWordInstance(language, status));
  check(status, "word boundaries");
  const std::unique_ptr<UText, decltype(&utext_close)> source(
      utext_openUTF8(nullptr, text.data(), static_cast<std::int64_t>(text.size()), &status), utext_close);
  check(status, "reading the text");
  boundaries->setText(source.get(), status);
  check(status, "reading the text");
  std::vector<std::string> words;
  std::int32_t begin = boundaries->first();
  for (std::int32_t end = boundaries->next(); end != icu::BreakIterator::DONE; begin = end, end = boundaries->next()) {
    const std::string_view word = text.substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
    if (!is_left_out(word)) words.emplace_back(word);
  }
  return words;
}

}  // namespace attn::text
