// src/runtime/thread_block.h: a block of memory that a thread keeps, there too where destructors of its last variables
// call the library.
#pragma once
#include "runtime/memory.h"

#include <utility>

#include <cxxabi.h>

extern "C" __attribute__((visibility("hidden"))) void* __dso_handle;

namespace attn::runtime {

/// Use: constinit thread_local. It has no destructor: a host's thread_local or static variable that was made before may
/// be destroyed after it and call the library. Each first block asks anew to be freed with the thread; what is asked
/// for among its destructors is granted too.
struct ThreadBlock {
  void* data = nullptr;
  std::size_t bytes = 0;
  bool is_freed_at_end = false;

  /// At least `size` bytes.
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
