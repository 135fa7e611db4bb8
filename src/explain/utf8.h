// src/explain/utf8.h: how many terminal columns a text takes, and cutting and padding it to so many.
#pragma once
#include <string>
#include <string_view>

namespace attn::explain_detail {

/// The text with control characters and malformed bytes replaced by U+FFFD: safe to print and to put into XML.
std::string printable(std::string_view text);

/// Columns on a terminal: Chinese, Japanese, Korean and emoji take two, combining marks none.
int display_width(std::string_view text);

/// At most `width` columns, the last being … when something was cut.
std::string cut(std::string_view text, int width);

std::string pad_left(std::string_view text, int width);
std::string pad_right(std::string_view text, int width);

}  // namespace attn::explain_detail
