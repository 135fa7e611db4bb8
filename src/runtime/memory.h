// src/runtime/memory.h: aligned memory that is counted.
#pragma once
#include "runtime/alignment.h"

#include <cstddef>
#include <cstdint>

namespace attn::runtime {

/// 64-byte aligned; std::bad_alloc when there is none. `bytes` 0 gives a valid pointer. `front`: room before it for
/// what goes with it, at front_of(data, front), 64-byte aligned too and not counted.
void* allocate(std::size_t bytes, std::size_t front = 0);
void deallocate(void* data) noexcept;
void* front_of(void* data, std::size_t front) noexcept;
void* behind_front(void* front_data, std::size_t front) noexcept;
/// Bytes now allocated by `allocate`, and the most there ever were since `reset_peak`.
std::size_t allocated_bytes() noexcept;
std::size_t peak_bytes() noexcept;
void reset_peak() noexcept;

}  // namespace attn::runtime
