// src/tensor/blocks.h: copies blocks of elements between strided memory and contiguous arrays of the type of the
// computation, so that kernels see no half floats and no strides.
#pragma once
#include <attn/dtype.h>

#include <algorithm>
#include <cstdint>

namespace attn {

/// The number of elements in a block; a few arrays of this size fit in L1.
inline constexpr std::int64_t block_elements = 512;

/// Calls block(start, count) for the consecutive blocks of n elements.
template <typename F>
void in_blocks(std::int64_t n, F block) {
  for (std::int64_t start = 0; start < n; start += block_elements) block(start, std::min(block_elements, n - start));
}

/// Copies `count` words of `size` bytes (1, 2, 4 or 8). The source words lie `from_stride` bytes apart (0: one word for
/// all), the target words `to_stride` bytes.
void move_words(std::size_t size, const char* from, std::int64_t from_stride, char* to, std::int64_t to_stride,
                std::int64_t count);

/// read_block converts `count` elements to the type of the computation; write_block converts them back and rounds once.
/// For half floats, `count` is at most one block if the stride differs from the element size.
void read_block(Dtype dtype, const char* from, std::int64_t stride, void* to, std::int64_t count);
void write_block(Dtype dtype, const void* from, char* to, std::int64_t stride, std::int64_t count);
/// Copies elements without conversion; the arguments are those of read_block and write_block.
void read_words(Dtype dtype, const char* from, std::int64_t stride, void* to, std::int64_t count);
void write_words(Dtype dtype, const void* from, char* to, std::int64_t stride, std::int64_t count);

/// Converts n contiguous elements of bf16 or f16 (`half`) to f32, and back.
inline void read_halves(Dtype half, const void* from, float* to, std::int64_t n) {
  read_block(half, static_cast<const char*>(from), 2, to, n);
}
inline void write_halves(Dtype half, const float* from, void* to, std::int64_t n) {
  write_block(half, from, static_cast<char*>(to), 2, n);
}

}  // namespace attn
