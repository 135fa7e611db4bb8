// tests/support/allocation_limit.h: the size from which `new` fails, in programs with support/failing_memory.h.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace attn::testing {

inline std::atomic<std::size_t> largest_allocation = SIZE_MAX;

}  // namespace attn::testing
