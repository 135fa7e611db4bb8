// src/model/gguf/types.cc: decodes each tensor type of GGUF files, and encodes some: one function a format, one table.
#include "model/gguf/types.h"

#include <attn/dtype.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <iterator>

namespace attn::gguf {
namespace {

// A block is decoded in the order of operations that the format defines: the scale is f16, products and sums are in
// f32, and nothing is fused (-ffp-contract=off).

template <typename T>
T value_at(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

float half_at(const std::byte* from) {
  float16 half;
  half.bits = value_at<std::uint16_t>(from);
  return static_cast<float>(half);
}

unsigned byte_at(const std::byte* from) { return std::to_integer<unsigned>(*from); }

/// Returns element i of 32 numbers of four bits: the low halves of 16 bytes are the first 16 numbers.
int nibble(const std::byte* quants, int i) {
  return static_cast<int>(i < 16 ? byte_at(quants + i) & 15u : byte_at(quants + i - 16) >> 4);
}

void f32(const std::byte* block, float* to) { *to = value_at<float>(block); }

void f16(const std::byte* block, float* to) { *to = half_at(block); }

void bf16(const std::byte* block, float* to) {
  const std::uint32_t bits = static_cast<std::uint32_t>(value_at<std::uint16_t>(block)) << 16;
  std::memcpy(to, &bits, sizeof bits);
}

/// scale f16, 32 numbers of 8 bits
void q8_0(const std::byte* block, float* to) {
  const float scale = half_at(block);
  for (int i = 0; i < 32; ++i) to[i] = static_cast<float>(value_at<std::int8_t>(block + 2 + i)) * scale;
}

/// scale f16, 32 numbers of 4 bits from -8
void q4_0(const std::byte* block, float* to) {
  const float scale = half_at(block);
  for (int i = 0; i < 32; ++i) to[i] = scale * static_cast<float>(nibble(block + 2, i) - 8);
}

/// scale and least number f16, 32 numbers of 4 bits
void q4_1(const std::byte* block, float* to) {
  const float scale = half_at(block), least = half_at(block + 2);
  for (int i = 0; i < 32; ++i) to[i] = scale * static_cast<float>(nibble(block + 4, i)) + least;
}

/// Returns element i of 32 numbers of five bits: the fifth bits are a word before the others.
int five_bits(const std::byte* quants, int i) {
  return nibble(quants + 4, i) | static_cast<int>((value_at<std::uint32_t>(quants) >> i & 1u) << 4);
}

/// scale f16, 32 numbers of 5 bits from -16
void q5_0(const std::byte* block, float* to) {
  const float scale = half_at(block);
  for (int i = 0; i < 32; ++i) to[i] = scale * static_cast<float>(five_bits(block + 2, i) - 16);
}

/// scale and least number f16, 32 numbers of 5 bits
void q5_1(const std::byte* block, float* to) {
  const float scale = half_at(block), least = half_at(block + 2);
  for (int i = 0; i < 32; ++i) to[i] = scale * static_cast<float>(five_bits(block + 4, i)) + least;
}

/// The 8 scales and 8 least numbers of 6 bits each that Q4_K and Q5_K pack into 12 bytes.
struct SixBits {
  std::array<float, 8> scale, least;
};
SixBits six_bits(const std::byte* packed) {
  SixBits result{};
  for (std::size_t i = 0; i < 4; ++i) {
    const unsigned a = byte_at(packed + i), b = byte_at(packed + 4 + i), high = byte_at(packed + 8 + i);
    result.scale[i] = static_cast<float>(a & 63u);
    result.least[i] = static_cast<float>(b & 63u);
    result.scale[i + 4] = static_cast<float>((high & 15u) | (a >> 2 & 0x30u));
    result.least[i + 4] = static_cast<float>((high >> 4) | (b >> 2 & 0x30u));
  }
  return result;
}

/// Decodes 8 groups of 32 numbers: scale * their_scale * number - least * their_least; number(group, i) is the number.
template <typename Number>
void eight_groups(const std::byte* block, float* to, Number&& number) {
  const float scale = half_at(block), least = half_at(block + 2);
  const SixBits groups = six_bits(block + 4);
  for (int group = 0; group < 8; ++group) {
    const float by = scale * groups.scale[static_cast<std::size_t>(group)],
                off = least * groups.least[static_cast<std::size_t>(group)];
    for (int i = 0; i < 32; ++i) to[32 * group + i] = by * static_cast<float>(number(group, i)) - off;
  }
}

/// Returns element i of group `group`, whose four bits lie beside those of the other group of its pair.
unsigned four_bits(const std::byte* quants, int group, int i) {
  return byte_at(quants + 32 * (group / 2) + i) >> (group % 2 * 4) & 15u;
}

/// scale and least number f16, 8 groups of 32 numbers of 4 bits
void q4_k(const std::byte* block, float* to) {
  eight_groups(block, to, [block](int group, int i) { return four_bits(block + 16, group, i); });
}

/// the same with 5 bits: bit `group` of 32 bytes is the fifth
void q5_k(const std::byte* block, float* to) {
  eight_groups(block, to, [block](int group, int i) {
    return four_bits(block + 48, group, i) | (byte_at(block + 16 + i) >> group & 1u) << 4;
  });
}

/// 16 groups of 16 numbers of 6 bits from -32, their scales of 8 bits, and a scale f16
void q6_k(const std::byte* block, float* to) {
  const std::byte *low = block, *high = block + 128, *scales = block + 192;
  const float scale = half_at(block + 208);
  for (int row = 0; row < 8; ++row) {  // 32 numbers
    const int half = row / 4, quarter = row % 4;
    for (int i = 0; i < 32; ++i) {
      const unsigned four = byte_at(low + 64 * half + quarter % 2 * 32 + i) >> (quarter / 2 * 4) & 15u,
                     two = byte_at(high + 32 * half + i) >> (2 * quarter) & 3u;
      const float by = scale * static_cast<float>(value_at<std::int8_t>(scales + 2 * row + i / 16));
      to[32 * row + i] = by * static_cast<float>(static_cast<int>(four | two << 4) - 32);
    }
  }
}

// Encoders, with the format's own rounding.

template <typename T>
void put(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

void to_f32(const float* number, std::byte* block) { put(block, *number); }
void to_f16(const float* number, std::byte* block) { put(block, float16(*number).bits); }
void to_bf16(const float* number, std::byte* block) { put(block, bfloat16(*number).bits); }

/// The greatest magnitude is 127.
void to_q8_0(const float* numbers, std::byte* block) {
  float greatest = 0;
  for (int i = 0; i < 32; ++i) greatest = std::max(greatest, std::abs(numbers[i]));
  const float scale = greatest / 127, inverse = scale == 0 ? 0 : 1 / scale;
  put(block, float16(scale).bits);
  for (int i = 0; i < 32; ++i) {
    const float x = numbers[i] * inverse, whole = std::floor(std::abs(x)),
                rounded = whole + std::floor(2 * (std::abs(x) - whole));
    put(block + 2 + i, static_cast<std::int8_t>(std::min(rounded, 127.0f) * (x < 0 ? -1.0f : 1.0f)));
  }
}

/// The number of the greatest magnitude is -8.
void to_q4_0(const float* numbers, std::byte* block) {
  float greatest = 0;
  for (int i = 0; i < 32; ++i)
    if (std::abs(numbers[i]) > std::abs(greatest)) greatest = numbers[i];
  const float scale = greatest / -8, inverse = scale == 0 ? 0 : 1 / scale;
  put(block, float16(scale).bits);
  const auto quant = [&](int i) { return static_cast<unsigned>(std::clamp(numbers[i] * inverse + 8.5f, 0.0f, 15.0f)); };
  for (int i = 0; i < 16; ++i) put(block + 2 + i, static_cast<std::uint8_t>(quant(i) | quant(i + 16) << 4));
}

template <void (*decode)(const std::byte*, float*), std::int64_t elements, std::int64_t bytes>
void each_block(const std::byte* blocks, std::int64_t count, float* to) {
  for (std::int64_t i = 0; i < count; ++i) decode(blocks + i * bytes, to + i * elements);
}

template <void (*decode)(const std::byte*, float*), std::int64_t elements, std::int64_t bytes>
constexpr Type type(std::uint32_t id, const char* name, void (*encode)(const float*, std::byte*) = nullptr) {
  return {id, name, elements, bytes, each_block<decode, elements, bytes>, encode};
}

constexpr Type table[] = {
    type<f32, 1, 4>(0, "F32", to_f32),      type<f16, 1, 2>(1, "F16", to_f16),
    type<bf16, 1, 2>(30, "BF16", to_bf16),  type<q8_0, 32, 34>(8, "Q8_0", to_q8_0),
    type<q4_0, 32, 18>(2, "Q4_0", to_q4_0), type<q4_1, 32, 20>(3, "Q4_1"),
    type<q5_0, 32, 22>(6, "Q5_0"),          type<q5_1, 32, 24>(7, "Q5_1"),
    type<q4_k, 256, 144>(12, "Q4_K"),       type<q5_k, 256, 176>(13, "Q5_K"),
    type<q6_k, 256, 210>(14, "Q6_K"),
};

/// The names of all types by id; those without one were given up by the format.
constexpr const char* names[] = {"F32",     "F16",    "Q4_0",    "Q4_1",  "",       "",      "Q5_0",  "Q5_1",
                                 "Q8_0",    "Q8_1",   "Q2_K",    "Q3_K",  "Q4_K",   "Q5_K",  "Q6_K",  "Q8_K",
                                 "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS",
                                 "I8",      "I16",    "I32",     "I64",   "F64",    "IQ1_M", "BF16",  "",
                                 "",        "",       "TQ1_0",   "TQ2_0", "",       "",      "",      "MXFP4"};

}  // namespace

std::span<const Type> types() { return table; }

std::string type_names() {
  std::string text;
  for (const Type& type : table) text += (text.empty() ? "" : ", ") + std::string(type.name);
  return text;
}

std::string name_of_type(std::uint32_t id) { return id < std::size(names) ? names[id] : ""; }

}  // namespace attn::gguf
