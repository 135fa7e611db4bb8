// src/kernels/block_format.h: lists the formats of quantised weights: blocks of numbers of few bits that share scales,
// as GGUF files have them.
#pragma once
#include <cstdint>

namespace attn::kernels {

/// A row of weights is a sequence of blocks. docs/numerics.md section 5.1 says which numbers a block stands for;
/// ref/blocks.cc decodes them.
enum class BlockFormat : std::uint8_t { none, q8_0, q4_0, q4_1, q5_0, q5_1, q4_k, q5_k, q6_k };

struct BlockSize {
  std::int64_t elements, bytes;
};
constexpr BlockSize block_size(BlockFormat format) {
  constexpr BlockSize sizes[] = {{1, 4},   {32, 34},   {32, 18},   {32, 20},  {32, 22},
                                 {32, 24}, {256, 144}, {256, 176}, {256, 210}};
  return sizes[static_cast<int>(format)];
}

/// The largest block, in bytes.
inline constexpr int most_block_bytes = 210;

}  // namespace attn::kernels
