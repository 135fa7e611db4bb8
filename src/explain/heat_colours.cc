// src/explain/heat_colours.cc: maps weights to shades and colours.
#include "explain/heat_colours.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace attn::explain_detail {
namespace {

// The stops of a colour ramp from dark blue over teal and green to yellow; relative luminance 0.02, 0.09, 0.17, 0.30,
// 0.52, 0.78.
constexpr std::array<Rgb, 6> kStops{
    {{48, 26, 92}, {52, 84, 140}, {30, 126, 140}, {46, 168, 120}, {146, 209, 80}, {250, 231, 90}}};

double luminance(Rgb colour) {
  const auto linear = [](int channel) {
    const double c = channel / 255.0;
    return c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4);
  };
  return 0.2126 * linear(colour.red) + 0.7152 * linear(colour.green) + 0.0722 * linear(colour.blue);
}

}  // namespace

double heat(double w, std::int64_t keys) {
  if (!(w > 0)) return 0;
  if (keys < 2) return std::min(w, 1.0);
  return std::clamp(1 + 0.8 * std::log(w) / std::log(static_cast<double>(keys)), 0.0, 1.0);
}

double shade_begin(int shade, std::int64_t keys) {
  return std::pow(static_cast<double>(std::max<std::int64_t>(keys, 1)), (shade - 5) / 4.0);
}

int shade_of(double w, std::int64_t keys) {
  int shade = 0;
  // 1e-6: a rounded equal share has shade 1
  while (shade < 4 && w * (1 + 1e-6) >= shade_begin(shade + 1, keys)) ++shade;
  return shade;
}

const char* shade_glyph(int shade) {
  constexpr std::array<const char*, 5> glyphs{" ", "░", "▒", "▓", "█"};
  return glyphs[static_cast<std::size_t>(std::clamp(shade, 0, 4))];
}

Rgb colour_of(double heat) {
  const double place = std::clamp(heat, 0.0, 1.0) * (kStops.size() - 1);
  const auto left = std::min(static_cast<std::size_t>(place), kStops.size() - 2);
  const double part = place - static_cast<double>(left);
  const auto mix = [&](int a, int b) { return static_cast<int>(std::lround(a + (b - a) * part)); };
  const Rgb &a = kStops[left], &b = kStops[left + 1];
  return {mix(a.red, b.red), mix(a.green, b.green), mix(a.blue, b.blue)};
}

bool wants_black_text(Rgb colour) { return luminance(colour) > 0.18; }

int palette_index(Rgb colour) {
  const auto level = [](int channel) {
    constexpr std::array<int, 6> levels{0, 95, 135, 175, 215, 255};
    int best = 0;
    for (int i = 1; i < 6; ++i)
      if (std::abs(levels[static_cast<std::size_t>(i)] - channel) <
          std::abs(levels[static_cast<std::size_t>(best)] - channel))
        best = i;
    return best;
  };
  return 16 + 36 * level(colour.red) + 6 * level(colour.green) + level(colour.blue);
}

}  // namespace attn::explain_detail
