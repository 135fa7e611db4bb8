// src/tensor/blocks.h: a run of elements a block at a time, in the type it is computed in: half floats and strides on
// the way to a kernel.
#pragma once
#include <attn/dtype.h>

#include <algorithm>
#include <cstdint>

namespace attn {

/// Elements of a block: a few arrays of them stay in the first cache.
inline constexpr std::int64_t block_elements = 512;

/// block(start, count) for n elements.
template <typename F>
void in_blocks(std::int64_t n, F block) {
  for (std::int64_t start = 0; start < n; start += block_elements) block(start, std::min(block_elements, n - start));
}

/// `count` words of `size` bytes (1, 2, 4 or 8) that lie `from_stride` bytes apart (0: one for all), to others.
void move_words(std::size_t size, const char* from, std::int64_t from_stride, char* to, std::int64_t to_stride,
                std::int64_t count);

/// `count` elements, of a block or fewer where their strides are not their size, in the type they are computed in; and
/// back, rounded once.
void read_block(Dtype dtype, const char* from, std::int64_t stride, void* to, std::int64_t count);
void write_block(Dtype dtype, const void* from, char* to, std::int64_t stride, std::int64_t count);
/// The same as they are.
void read_words(Dtype dtype, const char* from, std::int64_t stride, void* to, std::int64_t count);
void write_words(Dtype dtype, const void* from, char* to, std::int64_t stride, std::int64_t count);

/// n neighbours of bf16 or f16 (`half`) in f32, and back.
inline void read_halves(Dtype half, const void* from, float* to, std::int64_t n) {
  read_block(half, static_cast<const char*>(from), 2, to, n);
}
inline void write_halves(Dtype half, const float* from, void* to, std::int64_t n) {
  write_block(half, from, static_cast<char*>(to), 2, n);
}

}  // namespace attn
