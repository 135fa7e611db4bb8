// src/runtime/progress.h: a number that one thread raises and others wait for.
#pragma once
#include "runtime/futex.h"

#include <atomic>
#include <cstdint>

namespace attn::runtime {

/// How far a thread has come. Who waits spins a little, for the next value is mostly near, then sleeps: with fewer
/// cores than threads, spinning would take the core from the one that is waited for. A cache line each.
class alignas(64) Progress {
 public:
  static constexpr std::uint32_t whole = ~std::uint32_t{0};

  void reset() { reached_.store(0, std::memory_order_relaxed); }
  /// What was written before is seen by whoever waited for `value`.
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
