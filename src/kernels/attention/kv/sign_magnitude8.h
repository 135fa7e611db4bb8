// src/kernels/attention/kv/sign_magnitude8.h: describes int8 values in two representations: two's complement and
// sign-magnitude.
//
//   Element::i8                two's complement: vectors widen it to integers by one operation
//   Element::sign_magnitude8   the magnitude, with the sign as the top bit: the byte indexes a table of 128 directly,
//                              where two's complement would need two more operations before the products
//                              (tiles/bf16_decode_int8-inl.h)
#pragma once
#include <cstdint>

namespace attn::kernels {

/// Converts a byte, a number of -127 to 127, from either representation to the other.
constexpr std::int8_t other_form(std::int8_t byte) { return byte < 0 ? static_cast<std::int8_t>(-128 - byte) : byte; }

}  // namespace attn::kernels
