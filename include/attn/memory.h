// include/attn/memory.h: the memory that the library keeps for later, and how to have it back.
#pragma once
#include <attn/export.h>

#include <cstddef>

namespace attn {

/// Gives memory that is free back to the system: the blocks of freed tensors that wait for the next of their size (64
/// KiB and more, at most 1 GiB, never more than was in use at once), and with glibc what its heap holds free. Returns
/// the bytes of those blocks. What is in use stays; the next calls take new memory, at the price of its first touch.
/// Thread-safe.
ATTN_API std::size_t release_free_memory();

}  // namespace attn
