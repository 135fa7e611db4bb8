// src/explain/heat_colours.h: the scale from a weight to its shade, in text as in colour.
#pragma once
#include <cstdint>
#include <string>

namespace attn::explain_detail {

/// Where weight `w` stands among `keys` keys: 0.2 is an equal share (1 / keys), 1 is all of it, logarithmic between, so
/// that long sentences have as many shades as short ones.
double heat(double w, std::int64_t keys);
/// The weight at which shade 1 to 4 begins: keys^-1, keys^-3/4, keys^-1/2, keys^-1/4.
double shade_begin(int shade, std::int64_t keys);
/// " ", "░", "▒", "▓", "█" by fifths of `heat`.
int shade_of(double w, std::int64_t keys);
const char* shade_glyph(int shade);

struct Rgb {
  int red, green, blue;
};
/// Dark to light with luminance rising all the way, so that a grey copy reads the same.
Rgb colour_of(double heat);
/// Whether black is easier to read on it than white.
bool wants_black_text(Rgb colour);
/// Nearest of the 6 x 6 x 6 colours a 256-colour terminal has.
int palette_index(Rgb colour);

}  // namespace attn::explain_detail
