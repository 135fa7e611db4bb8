// src/runtime/progress.h: defines a number that one thread raises and other threads wait for.
#pragma once
#include "runtime/futex.h"

#include <atomic>
#include <cstdint>

namespace attn::runtime {

/// Counts how far a thread has come; each counter has its own cache line. A waiting thread spins briefly, because the
/// next value is usually near, and then sleeps: with fewer cores than threads, spinning would take the core from the
/// thread that works.
class alignas(64) Progress {
 public:
  static constexpr std::uint32_t whole = ~std::uint32_t{0};

  void reset() { reached_.store(0, std::memory_order_relaxed); }
  /// Raises the number. A thread that has waited for `value` sees everything that this thread wrote before.
  void reach(std::uint32_t value) {
    reached_.store(value, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) > 0) futex_wake(reached_, INT32_MAX);
  }
  void wait(std::uint32_t value) {
    for (int turn = 0; turn < 2000; ++turn) {
      if (reached_.load(std::memory_order_acquire) >= value) return;
      spin_pause();
    }
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    for (std::uint32_t seen = reached_.load(std::memory_order_seq_cst); seen < value;
         seen = reached_.load(std::memory_order_seq_cst))
      futex_wait(reached_, seen);
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint32_t> reached_{0};
  std::atomic<int> sleepers_{0};
};

}  // namespace attn::runtime
