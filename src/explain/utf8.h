// src/explain/utf8.h: makes text safe to show, and cuts and pads it to terminal columns.
#pragma once
#include <attn/text.h>

#include <string>
#include <string_view>
#include <vector>

namespace attn::explain_detail {

/// Replaces malformed bytes and characters for which text::steers is true by U+FFFD: the result is safe to print and to
/// put into XML.
std::string printable(std::string_view text);

using text::display_width;
inline std::string cut(std::string_view text, int width) { return text::truncate_to_width(text, width); }
std::string pad_left(std::string_view text, int width);
std::string pad_right(std::string_view text, int width);
/// Breaks a text into lines of at most `width` columns, at spaces and after "；" and "，"; cuts a longer word. Returns
/// no lines if one character alone is wider.
std::vector<std::string> wrapped(std::string_view text, int width);

}  // namespace attn::explain_detail
