// src/kernels/prefetch/prefetch.h: single cache lines prefetched into L2.
#pragma once
#include <cstdint>

namespace attn::kernels {

/// An address that is only prefetched: a number, since it may be beyond what a pointer may point to.
using Address = std::uintptr_t;
inline Address address_of(const void* memory) { return reinterpret_cast<Address>(memory); }

/// Prefetches the line at an address into L2: into L1 it would occupy one of the few line-fill buffers.
[[gnu::always_inline]] inline void prefetch_l2(Address at) {
  __builtin_prefetch(reinterpret_cast<const void*>(at), 0, 2);
}

/// The same, pinned to where it is written: the compiler moves others together, where they wait for each other, and the
/// next loads wait for them.
[[gnu::always_inline]] inline void prefetch_l2_pinned(Address at) {
#if defined(__x86_64__)
  asm volatile("prefetcht1 %0" : : "m"(*reinterpret_cast<const char*>(at)));
#else
  prefetch_l2(at);
#endif
}

/// Of LINES lines, the i-th at place(i), those that step `step` of `steps` prefetches.
template <int LINES, class F>
[[gnu::always_inline]] inline void prefetch_share_of(F&& place, int step, int steps) {
  for (int i = step * LINES / steps; i < (step + 1) * LINES / steps; ++i) prefetch_l2_pinned(place(i));
}
/// Of those side by side from `at` on.
template <int LINES>
[[gnu::always_inline]] inline void prefetch_share(Address at, int step, int steps) {
  prefetch_share_of<LINES>([at](int i) { return at + static_cast<Address>(i) * 64; }, step, steps);
}

/// Lines to prefetch; then others that were prefetched some steps ago, and more steps ago.
template <int TIMES>
struct PrefetchAddresses {
  Address at[TIMES];
};
template <int LINES, int TIMES>
[[gnu::always_inline]] inline void prefetch_share(const PrefetchAddresses<TIMES>& asks, int step, int steps) {
  for (int n = 0; n < TIMES; ++n) prefetch_share<LINES>(asks.at[n], step, steps);
}

}  // namespace attn::kernels
