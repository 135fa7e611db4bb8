// src/runtime/memory.h: allocates aligned memory and counts it.
#pragma once
#include "runtime/alignment.h"

#include <cstddef>
#include <cstdint>

namespace attn::runtime {

/// The largest size of an allocation: larger ones fail at once.
inline constexpr std::size_t most_bytes = std::size_t{1} << (sizeof(std::size_t) > 4 ? 48 : 31);

/// Allocates 64-byte aligned memory; throws std::bad_alloc if there is none. `bytes` 0 gives a valid pointer. `front`
/// is the size of extra space before the data, at front_of(data, front). That space is 64-byte aligned too, and not
/// counted.
void* allocate(std::size_t bytes, std::size_t front = 0);
void deallocate(void* data) noexcept;
void* front_of(void* data, std::size_t front) noexcept;
void* behind_front(void* front_data, std::size_t front) noexcept;
/// `allocated_bytes` returns the bytes that `allocate` has given and that are not yet freed; `peak_bytes` returns their
/// maximum since `reset_peak`.
std::size_t allocated_bytes() noexcept;
std::size_t peak_bytes() noexcept;
void reset_peak() noexcept;

}  // namespace attn::runtime
