// src/runtime/system_blocks.h: blocks as they come from and go back to the system: large ones on pages of 2 MiB, where
// it has them.
#pragma once
#include <cstddef>

namespace attn::runtime {

/// On Linux, blocks of so many bytes and more are mappings of their own that begin where a large page does.
inline constexpr std::size_t large_page = std::size_t{2} << 20;

/// 64-byte aligned; std::bad_alloc when there is none. Of the `size` bytes `asked` are wanted now: large pages end
/// before those do, so that no memory is taken by their rounding.
void* new_block(std::size_t size, std::size_t asked);
void delete_block(void* block, std::size_t size) noexcept;

}  // namespace attn::runtime
