// src/tensor/blocks.h: a run of elements a block at a time, in the type it is computed in: half floats and strides on the way to a kernel.
#pragma once
#include "kernels/rows/target.h"
#include "tensor/element.h"

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

template <typename T>
inline constexpr auto half_element = std::is_same_v<T, bfloat16> ? kernels::Element::bf16 : kernels::Element::f16;

/// `count` elements, of a block or more, that lie `stride` bytes apart, widened.
template <typename T>
void read_block(const char* from, std::int64_t stride, Compute<T>* to, std::int64_t count) {
  const auto convert_run = kernels::row_kernels().widen;
  if (is_half<T> && stride == sizeof(T) && convert_run != nullptr) return convert_run(half_element<T>, from, to, count);
  for (std::int64_t i = 0; i < count; ++i) to[i] = widen(*reinterpret_cast<const T*>(from + i * stride));
}

/// The same back, rounded once.
template <typename T>
void write_block(const Compute<T>* from, char* to, std::int64_t stride, std::int64_t count) {
  const auto convert_run = kernels::row_kernels().narrow;
  if (is_half<T> && stride == sizeof(T) && convert_run != nullptr) return convert_run(half_element<T>, from, to, count);
  for (std::int64_t i = 0; i < count; ++i) *reinterpret_cast<T*>(to + i * stride) = convert<T>(from[i]);
}

/// n neighbours of bf16 or f16 (`half`) in f32, and back.
void read_halves(Dtype half, const void* from, float* to, std::int64_t n);
void write_halves(Dtype half, const float* from, void* to, std::int64_t n);

}  // namespace attn
