// src/runtime/fork.h: locks that a forked child finds free.
#pragma once
#include <pthread.h>

#include <mutex>
#include <new>

namespace attn::runtime {

/// A lock that another thread of the parent holds while this one forks is never given back in the child; there it is
/// made anew. Use: a constant at namespace scope, beside a constinit lock. What it guards must be of use to the child
/// at any moment.
template <std::mutex& lock>
struct FreeInChild {
  FreeInChild() {
    pthread_atfork(nullptr, nullptr, [] { ::new (static_cast<void*>(&lock)) std::mutex; });
  }
};

}  // namespace attn::runtime
