// src/kernels/prefetch/prefetch.h: single cache lines prefetched into L2.
#pragma once
#include <cstdint>

namespace attn::kernels {

/// Where memory is that is only asked for: a number, since it may lie beyond what a pointer may reach.
using Address = std::uintptr_t;
inline Address address_of(const void* memory) { return reinterpret_cast<Address>(memory); }

/// Asks for the line at a place. Into the second cache: into the first it waits for one of the few lines on their way
/// there.
[[gnu::always_inline]] inline void prefetch_l2(Address at) {
  __builtin_prefetch(reinterpret_cast<const void*>(at), 0, 2);
}

/// The same, and not elsewhere: the compiler moves others to one place, where they wait for each other, and what is
/// computed next waits for them.
[[gnu::always_inline]] inline void prefetch_l2_pinned(Address at) {
#if defined(__x86_64__)
  asm volatile("prefetcht1 %0" : : "m"(*reinterpret_cast<const char*>(at)));
#else
  prefetch_l2(at);
#endif
}

/// Of LINES lines, the i-th at place(i), those that step `step` of `steps` asks for.
template <int LINES, class F>
[[gnu::always_inline]] inline void prefetch_share_of(F&& place, int step, int steps) {
  for (int i = step * LINES / steps; i < (step + 1) * LINES / steps; ++i) prefetch_l2_pinned(place(i));
}
/// Of those side by side from `at` on.
template <int LINES>
[[gnu::always_inline]] inline void prefetch_share(Address at, int step, int steps) {
  prefetch_share_of<LINES>([at](int i) { return at + static_cast<Address>(i) * 64; }, step, steps);
}

/// Lines to ask for; then others that were asked for some steps ago, and more steps ago.
template <int TIMES>
struct PrefetchAddresses {
  Address at[TIMES];
};
template <int LINES, int TIMES>
[[gnu::always_inline]] inline void prefetch_share(const PrefetchAddresses<TIMES>& asks, int step, int steps) {
  for (int n = 0; n < TIMES; ++n) prefetch_share<LINES>(asks.at[n], step, steps);
}

}  // namespace attn::kernels
