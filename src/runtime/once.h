// src/runtime/once.h: a value made at its first use, from any thread, also in a child forked while another thread is
// making it.
#pragma once
#include <atomic>

namespace attn::runtime {

/// What a function's static would be, without its lock: a child forked while some thread of the parent holds that lock
/// waits for ever. Threads that come at the same time each make the value; the first to finish wins. Never destroyed.
/// Use: constinit static.
template <typename T>
class Once {
 public:
  /// The value; `make()` makes it, and may throw: then the next call tries again.
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
