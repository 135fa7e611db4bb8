// src/explain/utf8.cc: replaces characters that a terminal or a drawing could interpret as commands.
#include "explain/utf8.h"

#include "text/unicode.h"

#include <algorithm>

namespace attn::explain_detail {
namespace {

std::string spaces(int count) { return std::string(static_cast<std::size_t>(std::max(0, count)), ' '); }

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const text::CodePoint point = text::code_point_at(text, at);
    if (point.value == text::not_a_character || text::steers(point.value)) result += "\xEF\xBF\xBD";
    else result += text.substr(at, point.bytes);
    at += point.bytes;
  }
  return result;
}

std::string pad_left(std::string_view text, int width) {
  return spaces(width - display_width(text)) + std::string(text);
}

std::string pad_right(std::string_view text, int width) {
  return std::string(text) + spaces(width - display_width(text));
}

std::vector<std::string> wrapped(std::string_view text, int width) {
  std::vector<std::string> lines;
  while (display_width(text) > width) {
    std::size_t fits = 0, broken = 0;  // bytes that fit; bytes up to the last possible break
    int used = 0;
    while (true) {
      const text::Character character = text::character_at(text, fits);
      const std::string_view bytes = text.substr(fits, character.bytes);
      if (bytes == " " && used <= width) broken = fits;
      if (used + character.width > width) break;
      used += character.width;
      fits += character.bytes;
      if (bytes == "；" || bytes == "，") broken = fits;
    }
    if (broken == 0) broken = fits;
    if (broken == 0) return {};  // not even one character fits
    lines.emplace_back(text.substr(0, broken));
    lines.back().erase(lines.back().find_last_not_of(' ') + 1);
    text.remove_prefix(std::min(text.find_first_not_of(' ', broken), text.size()));
  }
  if (!text.empty()) lines.emplace_back(text);
  return lines;
}

}  // namespace attn::explain_detail
