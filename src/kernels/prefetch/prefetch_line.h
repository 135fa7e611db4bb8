// src/kernels/prefetch/prefetch_line.h: prefetches single cache lines into L2.
#pragma once
#include <cstdint>

namespace attn::kernels {

/// An address that is only prefetched. It is an integer, because it may lie outside of any object, where a pointer is
/// not allowed.
using Address = std::uintptr_t;
inline Address address_of(const void* memory) { return reinterpret_cast<Address>(memory); }

/// Prefetches the cache line at an address into L2. A prefetch into L1 would occupy one of the few line-fill buffers.
[[gnu::always_inline]] inline void prefetch_l2(Address at) {
  __builtin_prefetch(reinterpret_cast<const void*>(at), 0, 2);
}

/// Does the same as prefetch_l2, at exactly this place in the code: the compiler may group other prefetches, which then
/// delay each other and the next loads.
[[gnu::always_inline]] inline void prefetch_l2_pinned(Address at) {
#if defined(__x86_64__)
  asm volatile("prefetcht1 %0" : : "m"(*reinterpret_cast<const char*>(at)));
#else
  prefetch_l2(at);
#endif
}

/// The addresses that a step prefetches: at[0] for the first time; at[1], at[2] ... were prefetched in earlier steps,
/// each earlier than the one before it, and are prefetched again.
template <int TIMES>
struct PrefetchAddresses {
  Address at[TIMES];
  [[gnu::always_inline]] void advance(int lines) {
    for (Address& address : at) address += static_cast<Address>(lines) * 64;
  }
};
/// Prefetches LINES adjacent cache lines from each address on, spread over `steps` calls: call number `step` prefetches
/// its share of them.
template <int LINES, int TIMES>
[[gnu::always_inline]] inline void prefetch_share(const PrefetchAddresses<TIMES>& addresses, int step, int steps) {
  for (int n = 0; n < TIMES; ++n)
    for (int i = step * LINES / steps; i < (step + 1) * LINES / steps; ++i)
      prefetch_l2_pinned(addresses.at[n] + static_cast<Address>(i) * 64);
}

}  // namespace attn::kernels
