// src/explain/terminal_block.cc: adds colour codes, pads lines and places blocks beside each other.
#include "explain/terminal_block.h"
#include "explain/heat_colours.h"
#include "explain/utf8.h"

#include "text/unicode.h"

#include "runtime/format.h"

#include <algorithm>

namespace attn::explain_detail {

std::string Ink::wrap(std::string_view code, std::string_view text) const {
  return coloured() && !text.empty() ? runtime::format("\x1b[{}m{}\x1b[0m", code, text) : std::string(text);
}

std::string Ink::on_heat(double heat, std::string_view text) const {
  if (!coloured()) return std::string(text);
  const Rgb colour = colour_of(heat);
  const std::string_view ink = wants_black_text(colour) ? "38;5;16" : "38;5;231";
  if (colour_ == TextOptions::Colour::rgb)
    return runtime::format("\x1b[{};48;2;{};{};{}m{}\x1b[0m", ink, colour.red, colour.green, colour.blue, text);
  return runtime::format("\x1b[{};48;5;{}m{}\x1b[0m", ink, palette_index(colour), text);
}

std::string fitted(const std::string& text, int width) {
  int used = 0;
  std::size_t cut = 0;  // bytes that leave one column free for the ellipsis
  bool coloured = false;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == '\x1b') {
      coloured = true;
      at = std::min(text.find('m', at), text.size() - 1) + 1;
      continue;
    }
    const text::Character character = text::character_at(text, at);
    if (used + character.width > width) return text.substr(0, cut) + (coloured ? "\x1b[0m…" : "…");
    used += character.width;
    at += character.bytes;
    if (used < width) cut = at;
  }
  return text;
}

Line line_of(std::string text) {
  const int width = display_width(text);
  return {std::move(text), width};
}

Block block_of(std::vector<Line> lines) {
  Block block{std::move(lines), 0};
  for (const Line& line : block.lines) block.width = std::max(block.width, line.width);
  for (Line& line : block.lines) {
    line.text.append(static_cast<std::size_t>(block.width - line.width), ' ');
    line.width = block.width;
  }
  return block;
}

std::vector<std::string> place(const Block& labels, const std::vector<Block>& bodies, int width, int gap) {
  std::vector<std::string> result;
  for (std::size_t first = 0; first < bodies.size();) {
    std::size_t end = first;
    int used = labels.width;
    do {
      used += bodies[end].width + (end > first ? gap : 0);
      ++end;
    } while (end < bodies.size() && used + gap + bodies[end].width <= width);
    for (std::size_t i = 0; i < labels.lines.size(); ++i) {
      std::string line = labels.lines[i].text;
      for (std::size_t body = first; body < end; ++body)
        line += std::string(body > first ? static_cast<std::size_t>(gap) : 0, ' ') + bodies[body].lines[i].text;
      line.erase(line.find_last_not_of(' ') + 1);
      result.push_back(std::move(line));
    }
    first = end;
  }
  return result;
}

}  // namespace attn::explain_detail
