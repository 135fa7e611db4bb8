// src/kernels/ask.h: memory that is asked for before it is used.
#pragma once
#include <cstdint>

namespace attn::kernels {

/// Where memory is that is only asked for: a number, since it may lie beyond what a pointer may reach.
using Place = std::uintptr_t;
inline Place place_of(const void* memory) { return reinterpret_cast<Place>(memory); }

/// Asks for the line at a place. Into the second cache: into the first it waits for one of the few lines on their way
/// there.
[[gnu::always_inline]] inline void ask_for(Place at) { __builtin_prefetch(reinterpret_cast<const void*>(at), 0, 2); }

/// The same, and not elsewhere: the compiler moves others to one place, where they wait for each other, and what is
/// computed next waits for them.
[[gnu::always_inline]] inline void ask_here(Place at) {
#if defined(__x86_64__)
  asm volatile("prefetcht1 %0" : : "m"(*reinterpret_cast<const char*>(at)));
#else
  ask_for(at);
#endif
}

/// Of LINES lines, the i-th at place(i), those that step `step` of `steps` asks for.
template <int LINES, class F>
[[gnu::always_inline]] inline void ask_share_of(F&& place, int step, int steps) {
  for (int i = step * LINES / steps; i < (step + 1) * LINES / steps; ++i) ask_here(place(i));
}
/// Of those side by side from `at` on.
template <int LINES>
[[gnu::always_inline]] inline void ask_share(Place at, int step, int steps) {
  ask_share_of<LINES>([at](int i) { return at + static_cast<Place>(i) * 64; }, step, steps);
}

/// Lines to ask for; then others that were asked for some steps ago, and more steps ago.
template <int TIMES>
struct Asks {
  Place at[TIMES];
};
template <int LINES, int TIMES>
[[gnu::always_inline]] inline void ask_share(const Asks<TIMES>& asks, int step, int steps) {
  for (int n = 0; n < TIMES; ++n) ask_share<LINES>(asks.at[n], step, steps);
}

}  // namespace attn::kernels
