// src/kernels/half.h: converts bf16 and f16 to f32, and f32 to them with rounding to nearest even; inline, for loops
// over elements.
#pragma once
#include <bit>
#include <cstdint>

namespace attn::half {

inline constexpr std::uint32_t sign_bit = 0x80000000u;

/// Returns value / 2^shift, rounded to nearest even; `shift` is in 1 ... 31, value + 2^(shift - 1) is below 2^32.
inline std::uint32_t shift_to_nearest_even(std::uint32_t value, int shift) {
  const std::uint32_t half = 1u << (shift - 1);
  const std::uint32_t odd = (value >> shift) & 1u;
  return (value + half - 1 + odd) >> shift;
}

inline std::uint16_t to_bf16(float value) {
  const auto word = std::bit_cast<std::uint32_t>(value);
  // quiet NaN, upper payload bits kept
  if ((word & ~sign_bit) > 0x7f800000u) return static_cast<std::uint16_t>((word >> 16) | 0x40u);
  return static_cast<std::uint16_t>(shift_to_nearest_even(word, 16));
}

inline float from_bf16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

inline std::uint16_t to_f16(float value) {
  const auto word = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = word & ~sign_bit;
  std::uint32_t half = 0;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u | ((magnitude >> 13) & 0x3ffu);  // quiet NaN, upper payload bits kept
  } else if (magnitude >= 0x477ff000u) {            // 65520 and above round to infinity
    half = 0x7c00u;
  } else if (magnitude >= 0x38800000u) {  // normal: the exponent's bias changes from 127 to 15
    half = shift_to_nearest_even(magnitude - 0x38000000u, 13);
  } else if (magnitude > 0x33000000u) {  // denormal, above half of 2^-24
    const int exponent = static_cast<int>(magnitude >> 23);
    half = shift_to_nearest_even((magnitude & 0x7fffffu) | 0x800000u, 126 - exponent);
  }
  return static_cast<std::uint16_t>(((word & sign_bit) >> 16) | half);
}

inline float from_f16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fu;
  const std::uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0) {  // zero and denormals: an exact multiple of 2^-24
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  const std::uint32_t rebased = exponent == 31 ? 0xffu : exponent + (127 - 15);
  return std::bit_cast<float>(sign | (rebased << 23) | (mantissa << 13));
}

}  // namespace attn::half
