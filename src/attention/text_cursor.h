// src/attention/text_cursor.h: reads the words and operators of a mask or a score expression that is given as text; its
// errors show the position.
#pragma once
#include <attn/error.h>
#include <attn/mask.h>

#include "runtime/format.h"
#include "text/error_text.h"

#include <algorithm>
#include <string>

namespace attn {

class TextCursor {
 public:
  /// `function`: the name in error texts. `text` must outlive the cursor.
  TextCursor(const char* function, const std::string& text) : text_(text), function_(function) {
    const std::size_t nul = text.find('\0');  // an error text that contains a NUL would end there
    if (nul != std::string::npos)
      throw ValueError(runtime::format("{}: \"{}\": column {} is a NUL byte; the text must have none", function,
                                       text::beginning(text, std::min<std::size_t>(nul, 80)), nul + 1));
  }

 protected:
  static bool digit(char c) { return c >= '0' && c <= '9'; }
  static bool letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

  /// Skips blanks.
  std::size_t skip() {
    while (place_ < text_.size() && (text_[place_] == ' ' || text_[place_] == '\t')) ++place_;
    return place_;
  }

  std::string word() {
    const std::size_t start = skip();
    while (place_ < text_.size() && (letter(text_[place_]) || (place_ > start && digit(text_[place_])))) ++place_;
    return text_.substr(start, place_ - start);
  }

  bool take(char sign) {
    if (skip() >= text_.size() || text_[place_] != sign) return false;
    ++place_;
    return true;
  }

  Align alignment() {
    const std::size_t start = skip();
    const std::string name = word();
    if (name == "top_left") return Align::top_left;
    if (name == "bottom_right") return Align::bottom_right;
    place_ = start;
    fail("top_left or bottom_right was expected");
  }

  [[noreturn, gnu::noinline]] void fail(const std::string& why) const {
    const std::string rest =
        place_ < text_.size() ? runtime::format("at \"{}\"", text::beginning(text_.substr(place_), 24)) : "at the end";
    throw ValueError(
        runtime::format("{}: \"{}\": column {}, {}: {}", function_, text::beginning(text_, 80), place_ + 1, rest, why));
  }

  const std::string& text_;
  std::size_t place_ = 0;

 private:
  const char* function_;
};

}  // namespace attn
