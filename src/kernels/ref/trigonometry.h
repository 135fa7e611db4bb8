// src/kernels/ref/trigonometry.h: computes sine and cosine with exact argument reduction for every finite number.
#pragma once
#include "kernels/ref/math.h"

namespace attn::kernels::ATTN_REF_NAMESPACE {

/// x = quadrant pi/2 + high + low, |high| <= about pi/4; quadrant is taken modulo 4.
struct Reduced {
  double high, low;
  std::uint64_t quadrant;
};

/// Reduces |x| < 2^20: subtracts n pi/2, with pi/2 in three parts; products with the first two are exact.
inline Reduced reduce_moderate(double x) {
  constexpr double rounder = Constants<double>::rounder;
  constexpr double two_over_pi = 0x1.45f306dc9c883p-1;
  constexpr double half_pi[] = {0x1.921fb544p+0, 0x1.0b4611a6p-34, 0x1.3198a2e037073p-69};
  const double shifted = fma(x, two_over_pi, rounder), n = shifted - rounder;
  const double first = x - n * half_pi[0], second = n * half_pi[1];
  const double difference = first - second, back = difference - first;
  const double error = (first - (difference - back)) - (second + back);  // exact error of the difference
  const double low = fma(-n, half_pi[2], error);
  const double high = difference + low;
  return {high, (difference - high) + low, to_bits(shifted)};
}

/// Reduces any other finite x (Payne and Hanek 1983): multiplies the 53-bit integer of x by the 192 bits of 2/pi that
/// matter modulo 4.
inline Reduced reduce_huge(double x) {
  // 2/pi in 1,280 bits
  constexpr std::uint64_t two_over_pi[] = {
      0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561, 0xb7246e3a424dd2e0,
      0x06492eea09d1921c, 0xfe1deb1cb129a73e, 0xe88235f52ebb4484, 0xe99c7026b45f7e41, 0x3991d639835339f4,
      0x9c845f8bbdf9283b, 0x1ff897ffde05980f, 0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d,
      0x7527bac7ebe5f17b, 0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab, 0xf0cfbc209af4361d};
  __extension__ using Wide = unsigned __int128;
  const std::uint64_t bits = to_bits(x);
  const int exponent = static_cast<int>(bits >> 52 & 0x7ff) - 1075;  // x = integer 2^exponent
  const std::uint64_t integer = (bits & 0xfffffffffffffu) | 0x10000000000000u;
  // The window has 192 bits of 2^exponent 2/pi, from the bit of weight 2^1 down; higher bits give multiples of 4. Bit i
  // (counted from 1) of 2/pi has weight 2^(exponent - i).
  const int start = exponent - 2;  // bits of 2/pi to skip
  std::uint64_t window[3];
  for (int i = 0; i < 3; ++i) {
    const int position = start + 64 * i, shift = ((position % 64) + 64) % 64, word = (position - shift) / 64;
    const std::uint64_t first = word >= 0 ? two_over_pi[word] : 0, next = word >= -1 ? two_over_pi[word + 1] : 0;
    window[i] = shift == 0 ? first : first << shift | next >> (64 - shift);
  }
  // the product modulo 2^192; its two leading bits are the quadrant
  const Wide lowest = Wide{window[2]} * integer;
  const Wide middle = Wide{window[1]} * integer + static_cast<std::uint64_t>(lowest >> 64);
  const std::uint64_t top = window[0] * integer + static_cast<std::uint64_t>(middle >> 64);
  Wide fraction =
      (Wide{top} << 64 | static_cast<std::uint64_t>(middle)) << 2 | static_cast<std::uint64_t>(lowest) >> 62;
  std::uint64_t quadrant = top >> 62;
  const bool negative = (fraction >> 127) != 0;  // above a half: count from the next quadrant
  if (negative) {
    fraction = -fraction;
    ++quadrant;
  }
  // fraction / 2^128 in two doubles, times pi/2 in two doubles
  int shift = 0;
  while (fraction >> 127 == 0 && shift < 127) {
    fraction <<= 1;
    ++shift;
  }
  const double scale = power_of_two<double>(-53 - shift);
  const double lead = static_cast<double>(static_cast<std::uint64_t>(fraction >> 75)) * scale;
  const double trail =
      static_cast<double>(static_cast<std::uint64_t>(fraction >> 22) & 0x1fffffffffffffu) * scale * 0x1p-53;
  constexpr double half_pi_high = 0x1.921fb54442d18p+0, half_pi_low = 0x1.1a62633145c07p-54;
  const double high = lead * half_pi_high;
  const double low = fma(lead, half_pi_high, -high) + fma(lead, half_pi_low, trail * half_pi_high);
  const bool minus = negative != (x < 0);
  return {minus ? -high : high, minus ? -low : low, x < 0 ? 0 - quadrant : quadrant};
}

inline double sine_of_turn(double x, std::uint64_t turn) {
  if (x != x || abs(x) == infinity<double>()) return quiet_nan<double>();
  const Reduced r = abs(x) < 0x1p20 ? reduce_moderate(x) : reduce_huge(x);
  const std::uint64_t quadrant = r.quadrant + turn;
  const double z = r.high * r.high;
  double y;
  if ((quadrant & 1) == 0) {
    const double tail = fma(-0.5 * z, r.low, r.low);
    y = r.high + fma(r.high * z, horner(Constants<double>::sin, z), tail);
  } else {
    const double half = 0.5 * z, lead = 1.0 - half;
    y = lead + (((1.0 - lead) - half) + fma(z * z, horner(Constants<double>::cos, z), -r.high * r.low));
  }
  return (quadrant & 2) == 0 ? y : -y;
}

inline double sin(double x) { return x == 0 ? x : sine_of_turn(x, 0); }
inline double cos(double x) { return sine_of_turn(x, 1); }
inline float sin(float x) { return canonical(static_cast<float>(sin(static_cast<double>(x)))); }
inline float cos(float x) { return canonical(static_cast<float>(cos(static_cast<double>(x)))); }

}  // namespace attn::kernels::ATTN_REF_NAMESPACE
