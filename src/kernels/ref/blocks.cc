// src/kernels/ref/blocks.cc: decodes blocks of quantised weights: one function a format.
#include "kernels/half.h"
#include "kernels/ref/table.h"

#include <array>
#include <cstddef>
#include <cstring>

namespace attn::kernels::ATTN_REF_NAMESPACE {
namespace {

// A block is decoded in the order of operations that the format defines: the scale is f16, products and sums are in
// f32, and nothing is fused (-ffp-contract=off).

template <typename T>
T value_at(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

float half_at(const std::byte* from) { return half::from_f16(value_at<std::uint16_t>(from)); }

unsigned byte_at(const std::byte* from) { return std::to_integer<unsigned>(*from); }

/// Returns element i of 32 numbers of four bits: the low halves of 16 bytes are the first 16 numbers.
int nibble(const std::byte* quants, int i) {
  return static_cast<int>(i < 16 ? byte_at(quants + i) & 15u : byte_at(quants + i - 16) >> 4);
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

/// Returns element i of group `group`, whose four bits share a byte with those of the other group of its pair.
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

template <void (*decode)(const std::byte*, float*), BlockFormat format>
void each_block(const std::byte* blocks, std::int64_t count, float* to) {
  constexpr BlockSize size = block_size(format);
  for (std::int64_t i = 0; i < count; ++i) decode(blocks + i * size.bytes, to + i * size.elements);
}

}  // namespace

void decode_blocks(BlockFormat format, const void* blocks, std::int64_t count, float* to) noexcept {
  const auto* const from = static_cast<const std::byte*>(blocks);
  switch (format) {
    case BlockFormat::none: return;
    case BlockFormat::q8_0: return each_block<q8_0, BlockFormat::q8_0>(from, count, to);
    case BlockFormat::q4_0: return each_block<q4_0, BlockFormat::q4_0>(from, count, to);
    case BlockFormat::q4_1: return each_block<q4_1, BlockFormat::q4_1>(from, count, to);
    case BlockFormat::q5_0: return each_block<q5_0, BlockFormat::q5_0>(from, count, to);
    case BlockFormat::q5_1: return each_block<q5_1, BlockFormat::q5_1>(from, count, to);
    case BlockFormat::q4_k: return each_block<q4_k, BlockFormat::q4_k>(from, count, to);
    case BlockFormat::q5_k: return each_block<q5_k, BlockFormat::q5_k>(from, count, to);
    case BlockFormat::q6_k: return each_block<q6_k, BlockFormat::q6_k>(from, count, to);
  }
}

}  // namespace attn::kernels::ATTN_REF_NAMESPACE
