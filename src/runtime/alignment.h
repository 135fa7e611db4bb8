// src/runtime/alignment.h: defines the alignment of the memory that the library allocates for data.
#pragma once
#include <cstddef>

namespace attn::runtime {

inline constexpr std::size_t alignment = 64;
/// Returns `bytes` rounded up to a multiple of the alignment.
constexpr std::size_t aligned(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

}  // namespace attn::runtime
