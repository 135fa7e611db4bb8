// src/runtime/fork.h: makes locks usable in a forked child.
#pragma once
#if !defined(__wasm__)
#include <pthread.h>
#endif

#include <mutex>
#include <new>

namespace attn::runtime {

/// If a thread of the parent holds a lock while another thread forks, nothing ever unlocks it in the child. This class
/// constructs the lock anew in the child. Declare it as a constant at namespace scope, next to a constinit lock. The
/// data that the lock guards must be usable by the child at any moment.
template <std::mutex& lock>
struct FreeInChild {
  FreeInChild() {
#if !defined(__wasm__)  // where there are no processes, nothing forks
    pthread_atfork(nullptr, nullptr, [] { ::new (static_cast<void*>(&lock)) std::mutex; });
#endif
  }
};

}  // namespace attn::runtime
