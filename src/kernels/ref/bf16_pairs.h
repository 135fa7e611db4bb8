// src/kernels/ref/bf16_pairs.h: what a processor's bf16 dot product computes, and what attention in bf16 makes of it (docs/numerics.md sections 3.8 and 4.1).
#pragma once
#include "kernels/ref/element.h"

#include <cstdint>

namespace attn::kernels::ATTN_REF_NAMESPACE {

/// The instruction knows no denormals.
inline float without_denormal(float x) { return (to_bits(x) & 0x7f800000u) == 0 ? from_bits<float>(to_bits(x) & 0x80000000u) : x; }

/// vdpbf16ps: the odd element first, each step rounded.
inline float dot_pair(float sum, float x_even, float y_even, float x_odd, float y_odd) {
  const auto step = [](float a, float x, float y) { return without_denormal(fma(without_denormal(x), without_denormal(y), without_denormal(a))); };
  return step(step(sum, x_odd, y_odd), x_even, y_even);
}

/// A chain over pairs (2d, 2d + 1), an odd end paired with 0.
inline float dot_pairs(const float* x, const float* y, std::int64_t count) {
  float sum = 0;
  for (std::int64_t d = 0; d < count; d += 2) sum = dot_pair(sum, x[d], y[d], d + 1 < count ? x[d + 1] : 0, d + 1 < count ? y[d + 1] : 0);
  return sum;
}

/// To the nearest bf16, as f32; a denormal is 0.
inline float rounded_to_bf16(float x) { return bf16_to_f32(bf16_of_f32(without_denormal(x))); }

/// e^(s - m) as exact as bf16 needs it: 2^floor(x) times a cubic of x - floor(x).
inline float bf16_weight(float s, float m) {
  const float x = fma(s, Constants<float>::log2e, m * -Constants<float>::log2e);
  if (x != x) return x;
  if (x < -1000) return 0;
  if (x > 1000) return infinity<float>();
  auto whole = static_cast<std::int64_t>(x);
  if (static_cast<float>(whole) > x) --whole;
  const double exact = static_cast<double>(x) - static_cast<double>(whole);
  float f = static_cast<float>(exact);
  if (static_cast<double>(f) > exact) f = from_bits<float>(to_bits(f) - 1);  // the instruction rounds it down
  float p = fma(0x1.4095eap-4f, f, 0x1.cf7a68p-3f);
  p = fma(p, f, 0x1.640ea8p-1f);
  p = fma(p, f, 1.0f);
  return static_cast<float>(static_cast<double>(p) * from_bits<double>(static_cast<std::uint64_t>(whole + 1023) << 52));  // one rounding
}

}  // namespace attn::kernels::ATTN_REF_NAMESPACE
