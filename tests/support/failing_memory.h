// tests/support/failing_memory.h: replaces `new` by one that fails on request. Include it in one file of a program; the
// thread sanitizer's build leaves that file out.
#pragma once
#include "support/allocation_limit.h"

#include <cstdlib>
#include <functional>
#include <new>

namespace attn::testing {

/// How many allocations of this thread succeed before one fails; below 0: none fails.
inline thread_local long allocations_left = -1;

inline void* allocate_or_fail(std::size_t bytes, std::size_t alignment) {
  if (allocations_left >= 0 && allocations_left-- == 0) throw std::bad_alloc();
  if (bytes > largest_allocation) throw std::bad_alloc();
  bytes = (bytes + alignment) / alignment * alignment;
  if (void* data = std::aligned_alloc(alignment, bytes)) return data;
  throw std::bad_alloc();
}

/// Not inlined, because GCC would warn about a `free` of memory from `new`.
[[gnu::noinline]] inline void release(void* data) noexcept { std::free(data); }

/// Runs `call` again and again: first allocation `first` fails, then the next, until `call` needs no more. Returns how
/// many allocations there are. after(n) checks what must hold after allocation n has failed; if it returns false, the
/// loop ends. An exception other than std::bad_alloc ends the test.
inline long fail_at_each(const std::function<void()>& call, long first = 0,
                         const std::function<bool(long)>& after = nullptr) {
  for (;; ++first) {
    bool done = true;
    allocations_left = first;
    try {
      call();
    } catch (const std::bad_alloc&) { done = false; } catch (...) {
      allocations_left = -1;
      throw;
    }
    allocations_left = -1;
    if (done || (after && !after(first))) return first;
  }
}

}  // namespace attn::testing

void* operator new(std::size_t bytes) { return attn::testing::allocate_or_fail(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return attn::testing::allocate_or_fail(bytes, static_cast<std::size_t>(alignment));
}
// Sanitizers have their own version, which would not match the deletes below.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return attn::testing::allocate_or_fail(bytes, alignof(std::max_align_t));
  } catch (const std::bad_alloc&) { return nullptr; }
}
void operator delete(void* data) noexcept { attn::testing::release(data); }
void operator delete(void* data, std::size_t) noexcept { attn::testing::release(data); }
void operator delete(void* data, const std::nothrow_t&) noexcept { attn::testing::release(data); }
void operator delete(void* data, std::align_val_t) noexcept { attn::testing::release(data); }
void operator delete(void* data, std::size_t, std::align_val_t) noexcept { attn::testing::release(data); }
