// src/explain/heat_colours.h: maps a weight to its shade, in text and in colour.
#pragma once
#include <cstdint>
#include <string>

namespace attn::explain_detail {

/// Returns the heat of weight `w` among `keys` keys: 0.2 for an equal share (1 / keys), 1 for the whole weight,
/// logarithmic in between, so that long sentences use as many shades as short ones.
double heat(double w, std::int64_t keys);
/// Returns the weight at which shade 1 to 4 begins: keys^-1, keys^-3/4, keys^-1/2, keys^-1/4.
double shade_begin(int shade, std::int64_t keys);
/// Returns the shade of `w`, 0 to 4: which fifth its heat is in. shade_glyph returns " ", "░", "▒", "▓" or "█" for it.
int shade_of(double w, std::int64_t keys);
const char* shade_glyph(int shade);

struct Rgb {
  int red, green, blue;
};
/// Returns the colour: luminance rises from dark to light all the way, so that a grey copy reads the same.
Rgb colour_of(double heat);
/// Returns whether black text is easier to read on the colour than white.
bool wants_black_text(Rgb colour);
/// Returns the nearest of the 6 x 6 x 6 colours of a 256-colour terminal.
int palette_index(Rgb colour);

}  // namespace attn::explain_detail
