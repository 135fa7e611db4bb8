// src/runtime/parallel.h: one function that shares parts of work among threads.
#pragma once
#include <cstdint>
#include <type_traits>

namespace attn::runtime {

/// Runs part(0) ... part(parts - 1), each once, on up to num_threads() threads; returns when all are done.
///  What a part does must depend on its index alone: who runs it is not fixed (whoever is awake claims the next, the
/// caller included). Nested and contended calls run all their parts in the caller. The first exception of a part
/// reaches the caller after the other parts have ended. Each part runs under the default floating-point environment.
/// `context` is passed to `part`; no allocation, so plain entries may use it.
void parallel_for(std::int64_t parts, void (*part)(void* context, std::int64_t index), void* context);

/// The same for a callable.
template <typename F>
void parallel_for(std::int64_t parts, F&& part) {
  using Function = std::remove_reference_t<F>;
  parallel_for(
      parts, [](void* context, std::int64_t index) { (*static_cast<Function*>(context))(index); },
      const_cast<void*>(static_cast<const void*>(&part)));
}

}  // namespace attn::runtime
