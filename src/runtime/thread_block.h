// src/runtime/thread_block.h: keeps a block of memory for a thread, usable also while the thread's last variables are
// destroyed.
#pragma once
#include "runtime/memory.h"

#include <utility>

#include <cxxabi.h>

extern "C" __attribute__((visibility("hidden"))) void* __dso_handle;

namespace attn::runtime {

/// Declare it constinit thread_local. It has no destructor, because a thread_local or static variable of the host may
/// be destroyed later and still call the library. Each first allocation registers the block to be freed at the end of
/// the thread. Allocations during the thread's destructors work too.
struct ThreadBlock {
  void* data = nullptr;
  std::size_t bytes = 0;
  bool is_freed_at_end = false;

  /// Returns at least `size` bytes.
  void* at_least(std::size_t size) {
    if (data != nullptr && bytes >= size) return data;
    if (!is_freed_at_end) is_freed_at_end = abi::__cxa_thread_atexit(end, this, &__dso_handle) == 0;
    deallocate(std::exchange(data, nullptr));
    data = allocate(size);
    bytes = size;
    return data;
  }

 private:
  static void end(void* self) {
    auto& block = *static_cast<ThreadBlock*>(self);
    deallocate(std::exchange(block.data, nullptr));
    block = {};
  }
};

}  // namespace attn::runtime
