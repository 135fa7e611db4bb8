// src/kernels/ref/bf16_pairs.h: computes the bf16 products of a processor, by pairs or by tiles, and the bf16 softmax
// weight (docs/numerics.md sections 3.8 and 4.1).
#pragma once
#include "kernels/ref/element.h"

#include <cstdint>

namespace attn::kernels::ATTN_REF_NAMESPACE {

/// Returns x, or a zero of its sign if x is a denormal: the instructions treat denormals as 0.
inline float without_denormal(float x) {
  return (to_bits(x) & 0x7f800000u) == 0 ? from_bits<float>(to_bits(x) & 0x80000000u) : x;
}

/// How bf16 elements are multiplied: in f32 after widening, by vdpbf16ps, or by tdpbf16ps.
enum class Bf16Product { wide, pairs, tiles };

/// Computes vdpbf16ps: adds the product of the odd elements first, and rounds after each step.
inline float dot_pair(float sum, float x_even, float y_even, float x_odd, float y_odd) {
  const auto step = [](float a, float x, float y) {
    return without_denormal(fma(without_denormal(x), without_denormal(y), without_denormal(a)));
  };
  return step(step(sum, x_odd, y_odd), x_even, y_even);
}

/// Computes tdpbf16ps for one unit: items x(n) ... x(n + 31) and y(n) ... y(n + 31); items from `count` on are 0.
template <typename X, typename Y>
float dot_unit(float sum, std::int64_t n, std::int64_t count, const X& x, const Y& y) {
  float chain[2] = {0, 0};  // of the even items, of the odd items
  for (std::int64_t i = n; i < n + 32 && i < count; ++i)
    chain[i % 2] = without_denormal(fma(without_denormal(x(i)), without_denormal(y(i)), chain[i % 2]));
  return without_denormal(sum + without_denormal(chain[0] + chain[1]));
}

/// Rounds to the nearest bf16, as f32; a denormal becomes 0.
inline float rounded_to_bf16(float x) { return bf16_to_f32(bf16_of_f32(without_denormal(x))); }

/// Computes a chain over the items x(n) and y(n), taken from 0 on in pairs or units; an incomplete last one is filled
/// with 0.
template <typename X, typename Y>
float dot_items(Bf16Product product, float sum, std::int64_t count, const X& x, const Y& y) {
  if (product == Bf16Product::tiles)
    for (std::int64_t n = 0; n < count; n += 32) sum = dot_unit(sum, n, count, x, y);
  else
    for (std::int64_t n = 0; n < count; n += 2)
      sum = dot_pair(sum, x(n), y(n), n + 1 < count ? x(n + 1) : 0, n + 1 < count ? y(n + 1) : 0);
  return sum;
}
inline float dot_rows(Bf16Product product, const float* x, const float* y, std::int64_t count) {
  return dot_items(product, 0, count, [x](std::int64_t n) { return x[n]; }, [y](std::int64_t n) { return y[n]; });
}

/// Computes e^(s - m) as exactly as bf16 needs it: 2^floor(x) times a cubic of x - floor(x).
inline float bf16_weight(float s, float m) {
  const float x = (s - m) * Constants<float>::log2e;
  if (x != x) return x;
  if (x < -1000) return 0;
  if (x > 1000) return infinity<float>();
  auto whole = static_cast<std::int64_t>(x);
  if (static_cast<float>(whole) > x) --whole;
  const double exact = static_cast<double>(x) - static_cast<double>(whole);
  float f = static_cast<float>(exact);
  if (static_cast<double>(f) > exact) f = from_bits<float>(to_bits(f) - 1);  // vreduceps rounds down
  float p = fma(0x1.4095eap-4f, f, 0x1.cf7a68p-3f);
  p = fma(p, f, 0x1.640ea8p-1f);
  p = fma(p, f, 1.0f);
  // rounded once
  return static_cast<float>(static_cast<double>(p) * from_bits<double>(static_cast<std::uint64_t>(whole + 1023) << 52));
}

}  // namespace attn::kernels::ATTN_REF_NAMESPACE
