// include/attn/memory.h: returns the memory that the library caches to the system.
#pragma once
#include <attn/export.h>

#include <cstddef>

namespace attn {

/// Returns unused memory to the system: blocks of freed tensors that are cached for tensors of the same size (64 KiB
/// and more, at most 1 GiB, never more than was in use at once), and with glibc the free part of its heap. The return
/// value is the bytes of those blocks. Memory in use stays. Later calls allocate again, which costs page faults on
/// first access. Thread-safe.
ATTN_API std::size_t release_free_memory();

}  // namespace attn
