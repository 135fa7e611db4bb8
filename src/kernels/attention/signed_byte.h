// src/kernels/attention/signed_byte.h: whole numbers from -127 to 127 in 8 bits, in either of two forms.
//
//   Element::i8    two's complement: what vectors widen to whole numbers by one operation
//   Element::sm8   the magnitude, and on top of it whether the number is negative: such a byte looks up a table of 128
//                  as it is, where the magnitude of two's complement would be two operations more, in the way of the
//                  products (bf16_few_bytes-inl.h)
#pragma once
#include <cstdint>

namespace attn::kernels {

/// From either form to the other.
constexpr std::int8_t other_form(std::int8_t byte) { return byte < 0 ? static_cast<std::int8_t>(-128 - byte) : byte; }

}  // namespace attn::kernels
