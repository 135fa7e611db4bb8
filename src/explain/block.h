// src/explain/block.h: rectangles of terminal text whose width is known, colour included, and their places beside each
// other.
#pragma once
#include <attn/explain.h>

#include <string>
#include <string_view>
#include <vector>

namespace attn::explain_detail {

/// Colours of the terminal, or none: with `Colour::none` every text comes back as it is.
class Ink {
 public:
  explicit Ink(TextOptions::Colour colour) : colour_(colour) {}
  bool coloured() const { return colour_ != TextOptions::Colour::none; }
  std::string strong(std::string_view text) const { return wrap("1", text); }
  std::string faint(std::string_view text) const { return wrap("2", text); }
  std::string formula(std::string_view text) const { return wrap("36", text); }
  std::string number(std::string_view text) const { return wrap("1;33", text); }
  /// On the colour of `heat` (heat_colours.h), in black or white.
  std::string on_heat(double heat, std::string_view text) const;

 private:
  std::string wrap(std::string_view code, std::string_view text) const;
  TextOptions::Colour colour_;
};

/// The text, its end cut where it has more than `width` columns; codes of colour take none.
std::string fitted(const std::string& text, int width);

/// Text without escape codes is `width` columns wide.
struct Line {
  std::string text;
  int width = 0;
};
/// Lines of one width.
struct Block {
  std::vector<Line> lines;
  int width = 0;
};

/// All lines padded to the widest.
Block block_of(std::vector<Line> lines);
Line line_of(std::string text);

/// `labels` at the left and as many bodies beside it as fit into `width`, the rest below in the same way.
/// All blocks have the same number of lines.
std::vector<std::string> place(const Block& labels, const std::vector<Block>& bodies, int width, int gap);

}  // namespace attn::explain_detail
