// src/explain/utf8.h: text that is safe to show, cut and padded to terminal columns.
#pragma once
#include <attn/text.h>

#include <string>
#include <string_view>
#include <vector>

namespace attn::explain_detail {

/// The text with control characters and malformed bytes replaced by U+FFFD: safe to print and to put into XML.
std::string printable(std::string_view text);

using text::display_width;
inline std::string cut(std::string_view text, int width) { return text::truncate_to_width(text, width); }
std::string pad_left(std::string_view text, int width);
std::string pad_right(std::string_view text, int width);
/// Lines of at most `width` columns, broken at spaces and after "；" and "，"; a longer word is cut.
std::vector<std::string> wrapped(std::string_view text, int width);

}  // namespace attn::explain_detail
