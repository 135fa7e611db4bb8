// src/runtime/futex.h: waits until a word in memory changes, and wakes the threads that wait for it (Linux).
#pragma once
#if !defined(__wasm__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <atomic>
#include <cstdint>

namespace attn::runtime {

#if defined(__wasm__)  // there is only one thread, so nothing waits
inline void futex_wait(std::atomic<std::uint32_t>&, std::uint32_t) {}
inline void futex_wake(std::atomic<std::uint32_t>&, int) {}
#else
/// Sleeps until woken. Returns at once if `word` is no longer `seen`; may also return spuriously.
inline void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}

inline void futex_wake(std::atomic<std::uint32_t>& word, int threads) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE_PRIVATE, threads, nullptr, nullptr, 0);
}
#endif

/// Runs one iteration of a loop that waits for another core.
inline void spin_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace attn::runtime
