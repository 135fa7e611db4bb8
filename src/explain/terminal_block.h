// src/explain/terminal_block.h: builds rectangles of terminal text of known width (colour codes take no columns) and
// places them beside each other.
#pragma once
#include <attn/explain.h>

#include <string>
#include <string_view>
#include <vector>

namespace attn::explain_detail {

/// Adds the terminal's colour codes to a text; with `Colour::none` it returns every text unchanged.
class Ink {
 public:
  explicit Ink(TextOptions::Colour colour) : colour_(colour) {}
  bool coloured() const { return colour_ != TextOptions::Colour::none; }
  std::string strong(std::string_view text) const { return wrap("1", text); }
  std::string faint(std::string_view text) const { return wrap("2", text); }
  std::string formula(std::string_view text) const { return wrap("36", text); }
  std::string number(std::string_view text) const { return wrap("1;33", text); }
  /// Prints the text on the colour of `heat` (heat_colours.h), in black or white.
  std::string on_heat(double heat, std::string_view text) const;

 private:
  std::string wrap(std::string_view code, std::string_view text) const;
  TextOptions::Colour colour_;
};

/// Cuts the end of a text that is wider than `width` columns; colour codes take no columns.
std::string fitted(const std::string& text, int width);

/// One line; `width` is its number of columns without escape codes.
struct Line {
  std::string text;
  int width = 0;
};
/// Lines of equal width.
struct Block {
  std::vector<Line> lines;
  int width = 0;
};

/// Pads all lines to the widest one.
Block block_of(std::vector<Line> lines);
Line line_of(std::string text);

/// Places `labels` at the left and beside it as many bodies as fit into `width`, at least one; the rest follows below
/// in the same way. All blocks must have the same number of lines.
std::vector<std::string> place(const Block& labels, const std::vector<Block>& bodies, int width, int gap);

}  // namespace attn::explain_detail
