// src/runtime/once.h: makes a value at its first use, from any thread, also in a child that was forked while another
// thread was making it.
#pragma once
#include <atomic>

namespace attn::runtime {

/// Replaces a function's static variable, but has no lock: if a thread of the parent holds that lock at a fork, the
/// child waits for ever. Threads that arrive at the same time each make a value; the first to finish sets it. The value
/// is never destroyed. Declare it constinit static.
template <typename T>
class Once {
 public:
  /// Returns the value. The first call makes it with `make()`. If `make` throws, the next call tries again.
  template <typename Make>
  const T& get(Make&& make) {
    if (const T* made = made_.load(std::memory_order_acquire)) return *made;
    const T* const mine = new T(make());
    const T* other = nullptr;
    if (made_.compare_exchange_strong(other, mine, std::memory_order_acq_rel, std::memory_order_acquire)) return *mine;
    delete mine;
    return *other;
  }

 private:
  std::atomic<const T*> made_{nullptr};
};

}  // namespace attn::runtime
