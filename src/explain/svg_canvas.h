// src/explain/svg_canvas.h: collects the shapes of an SVG drawing and the size that they need.
#pragma once
#include "explain/heat_colours.h"

#include <string>
#include <string_view>
#include <vector>

namespace attn::explain_detail {

class SvgCanvas {
 public:
  enum class Anchor { start, end, middle };
  // Sizes in pixels: a line of text, the widest character of the monospace font of 13 px, and the drawing's margin.
  static constexpr int line = 22, character = 8, margin = 24;

  /// Draws a text whose line begins at `y`; `style` is a class of the style sheet, or "" for numbers.
  void text(int x, int y, std::string_view style, std::string_view words, Anchor anchor = Anchor::start);
  /// Draws a text that rises at 45 degrees from (x, y), its lower left end.
  void rising(int x, int y, std::string_view style, std::string_view words);
  /// Draws one line of three texts, one behind the other, each in a style of its own.
  void heading(int x, int y, std::string_view title, std::string_view behind, std::string_view formula);
  void fill(int x, int y, int width, int height, Rgb colour);
  /// Draws the background of a token.
  void chip(int x, int y, int width);
  void frame(int x, int y, int width, int height);
  /// Draws a line across the whole drawing, however wide it becomes.
  void rule(int y);
  /// Makes the drawing large enough to hold the point (x, y).
  void reach(int x, int y);

  /// Returns the whole drawing; `label` is read aloud in its place.
  std::string finish(std::string_view label) const;

  /// Returns the width of a text in pixels, if each column has the widest character.
  static int width_of(std::string_view words);

 private:
  std::string shapes_;
  std::vector<int> rules_;  // their y
  int right_ = margin + 640, bottom_ = margin;
};

}  // namespace attn::explain_detail
