// src/runtime/parallel.h: declares parallel_for, which shares the parts of work among threads.
#pragma once
#include <cstdint>
#include <type_traits>

namespace attn::runtime {

/// Runs part(0) ... part(parts - 1), each once, on up to num_threads() threads; returns after all have ended. A part
/// may depend only on its index, because any thread may run it: each idle thread, the caller included, claims the next
/// part. A call inside one of several parts, or while another call has the pool, runs all its parts in its own thread.
/// The first exception of a part is rethrown in the caller after the other parts have ended. Each part runs under the
/// default floating-point environment. `context` is passed to `part`. Nothing is allocated except what starting workers
/// takes, so `attn::plain` may call this.
void parallel_for(std::int64_t parts, void (*part)(void* context, std::int64_t index), void* context);

/// Does the same for a callable object.
template <typename F>
void parallel_for(std::int64_t parts, F&& part) {
  using Function = std::remove_reference_t<F>;
  parallel_for(
      parts, [](void* context, std::int64_t index) { (*static_cast<Function*>(context))(index); },
      const_cast<void*>(static_cast<const void*>(&part)));
}

}  // namespace attn::runtime
