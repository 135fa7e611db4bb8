// src/runtime/alignment.h: how the library's memory is aligned.
#pragma once
#include <cstddef>

namespace attn::runtime {

inline constexpr std::size_t alignment = 64;
/// The next multiple of it.
constexpr std::size_t aligned(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

}  // namespace attn::runtime
