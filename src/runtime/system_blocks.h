// src/runtime/system_blocks.h: allocates blocks from the system and frees them; large blocks use pages of 2 MiB where
// the system has them.
#pragma once
#include <cstddef>

namespace attn::runtime {

/// On Linux, a block of at least this many bytes is a mapping of its own that begins at a large page.
inline constexpr std::size_t large_page = std::size_t{2} << 20;

/// Allocates a 64-byte aligned block of `size` bytes; throws std::bad_alloc if there is none. Only `asked` bytes of it
/// are used now; large pages end before `asked`, so that rounding takes no extra memory.
void* new_block(std::size_t size, std::size_t asked);
void delete_block(void* block, std::size_t size) noexcept;

}  // namespace attn::runtime
