// src/kernels/element.h: lists the types of stored elements, with their sizes and the numbers that 8 bits stand for.
#pragma once
#include <cstdint>

namespace attn::kernels {

/// The types of 8 bits are those of KV caches; each byte is a number that is multiplied by its group's scale.
///
///   i8                int8 in two's complement: vectors widen it to integers by one operation
///   sign_magnitude8   the same numbers as magnitudes, with the sign as the top bit: the byte indexes a table of 128
///                     directly, where two's complement would need two more operations before the products
///                     (tiles/bf16_decode_int8-inl.h)
enum class Element : std::uint8_t { f32, f64, bf16, f16, i8, sign_magnitude8 };

/// Returns whether the element is an int8 value in either representation.
constexpr bool is_int8(Element element) { return element == Element::i8 || element == Element::sign_magnitude8; }

constexpr std::int64_t bytes_of(Element element) {
  switch (element) {
    case Element::f64: return 8;
    case Element::f32: return 4;
    case Element::bf16:
    case Element::f16: return 2;
    default: return 1;
  }
}

/// Converts a byte, a number of -127 to 127, from either representation of int8 to the other.
constexpr std::int8_t other_form(std::int8_t byte) { return byte < 0 ? static_cast<std::int8_t>(-128 - byte) : byte; }

/// Returns the number that a byte of an 8-bit type stands for.
constexpr float number_of(Element element, std::int8_t byte) {
  return static_cast<float>(element == Element::sign_magnitude8 ? other_form(byte) : byte);
}

}  // namespace attn::kernels
