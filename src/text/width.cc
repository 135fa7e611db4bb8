// src/text/width.cc: computes the width of a text on a terminal, in columns.
#include <attn/text.h>

#include "text/unicode.h"

namespace attn::text {

int display_width(std::string_view text) {
  int columns = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    columns += c.width;
    at += c.bytes;
  }
  return columns;
}

std::string truncate_to_width(std::string_view text, int columns) {
  if (columns <= 0) return "";
  int used = 0;
  std::size_t fits = 0;  // bytes that fit if one column is left for the ellipsis
  for (std::size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    used += c.width;
    if (used > columns) return std::string(text.substr(0, fits)) + "…";
    at += c.bytes;
    if (used < columns) fits = at;
  }
  return std::string(text);
}

}  // namespace attn::text
