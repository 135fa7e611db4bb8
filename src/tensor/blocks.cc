// src/tensor/blocks.cc: copies words between any two strides, and converts half floats to f32 and back.
#include "tensor/blocks.h"

#include "kernels/rows/target.h"
#include "tensor/element.h"

#include <cstring>

namespace attn {
namespace {

template <typename Word>
void move(const char* from, std::int64_t from_stride, char* to, std::int64_t to_stride, std::int64_t count) {
  constexpr std::int64_t size = sizeof(Word);
  const auto word = [from](std::int64_t at) {
    Word w;
    std::memcpy(&w, from + at, sizeof w);
    return w;
  };
  if (from_stride == 0 && to_stride == size) {
    std::fill_n(reinterpret_cast<Word*>(to), count, word(0));
  } else if (to_stride == size) {
    for (std::int64_t i = 0; i < count; ++i) reinterpret_cast<Word*>(to)[i] = word(i * from_stride);
  } else {
    for (std::int64_t i = 0; i < count; ++i) *reinterpret_cast<Word*>(to + i * to_stride) = word(i * from_stride);
  }
}

kernels::Element element_of_half(Dtype half) {
  return half == Dtype::bf16 ? kernels::Element::bf16 : kernels::Element::f16;
}

/// Writes convert(from[i]) to to[i].
template <typename To, typename From>
void convert_all(const void* from, void* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) static_cast<To*>(to)[i] = convert<To>(static_cast<const From*>(from)[i]);
}

}  // namespace

void move_words(std::size_t size, const char* from, std::int64_t from_stride, char* to, std::int64_t to_stride,
                std::int64_t count) {
  const auto bytes = static_cast<std::int64_t>(size);
  if (from_stride == bytes && to_stride == bytes) {
    std::memmove(to, from, static_cast<std::size_t>(count) * size);
    return;
  }
  switch (size) {
    case 1: return move<std::uint8_t>(from, from_stride, to, to_stride, count);
    case 2: return move<std::uint16_t>(from, from_stride, to, to_stride, count);
    case 4: return move<std::uint32_t>(from, from_stride, to, to_stride, count);
    default: return move<std::uint64_t>(from, from_stride, to, to_stride, count);
  }
}

void read_words(Dtype dtype, const char* from, std::int64_t stride, void* to, std::int64_t count) {
  move_words(size_of(dtype), from, stride, static_cast<char*>(to), static_cast<std::int64_t>(size_of(dtype)), count);
}

void write_words(Dtype dtype, const void* from, char* to, std::int64_t stride, std::int64_t count) {
  move_words(size_of(dtype), static_cast<const char*>(from), static_cast<std::int64_t>(size_of(dtype)), to, stride,
             count);
}

void read_block(Dtype dtype, const char* from, std::int64_t stride, void* to, std::int64_t count) {
  if (compute_dtype(dtype) == dtype) return read_words(dtype, from, stride, to, count);
  std::uint16_t halves[block_elements];
  if (stride != 2) {
    read_words(dtype, from, stride, halves, count);
    from = reinterpret_cast<const char*>(halves);
  }
  if (const auto widen_all = kernels::row_kernels().widen) return widen_all(element_of_half(dtype), from, to, count);
  dtype == Dtype::bf16 ? convert_all<float, bfloat16>(from, to, count) : convert_all<float, float16>(from, to, count);
}

void write_block(Dtype dtype, const void* from, char* to, std::int64_t stride, std::int64_t count) {
  if (compute_dtype(dtype) == dtype) return write_words(dtype, from, to, stride, count);
  std::uint16_t halves[block_elements];
  void* const there = stride == 2 ? static_cast<void*>(to) : halves;
  if (const auto narrow_all = kernels::row_kernels().narrow) narrow_all(element_of_half(dtype), from, there, count);
  else
    dtype == Dtype::bf16 ? convert_all<bfloat16, float>(from, there, count)
                         : convert_all<float16, float>(from, there, count);
  if (stride != 2) write_words(dtype, halves, to, stride, count);
}

}  // namespace attn
