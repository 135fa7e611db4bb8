// src/runtime/shares.h: divides parts that are adjacent in memory so that each thread takes a range of them.
#pragma once
#include <atomic>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace attn::runtime {

/// Divides parts [0, parts) into `shares` ranges. A thread that finishes its range takes parts from the other ranges.
class Shares {
 public:
  Shares(std::int64_t parts, std::int64_t shares)
      : parts_(parts), shares_(shares), many_(static_cast<std::size_t>(shares > few ? shares : 0)) {}
  Shares(const Shares&) = delete;
  Shares& operator=(const Shares&) = delete;

  /// Calls run(part) for the parts of range `own` that no thread has taken, then for those of the ranges after it, and
  /// of the first ones at last.
  template <typename F>
  void run_from(std::int64_t own, F&& run) {
    Next* const next = shares_ > few ? many_.data() : few_;
    for (std::int64_t n = 0; n < shares_; ++n) {
      const std::int64_t share = (own + n) % shares_, first = first_of(share), end = first_of(share + 1);
      for (std::int64_t part; (part = first + next[share].taken.fetch_add(1, std::memory_order_relaxed)) < end;)
        run(part);
    }
  }

 private:
  struct alignas(64) Next {  // a cache line each: each thread counts in its own
    std::atomic<std::int64_t> taken{0};
  };
  static constexpr std::int64_t few = 8;  // up to this many ranges need no allocation, which would slow a small call
  std::int64_t first_of(std::int64_t share) const { return parts_ * share / shares_; }

  std::int64_t parts_, shares_;
  Next few_[few];
  std::vector<Next> many_;
};

/// Does what parallel_for does, for parts whose neighbours read and write adjacent memory. From call to call, cache
/// lines then do not move between cores, and a thread prefetches only lines that it uses itself. With 2 threads of a
/// fifth-generation AMD EPYC, attention forward and backward on (32, 8, 64, 64), 256 heads, takes .8 of the time, and
/// softmax of 512 rows .7 to .85. A part must leave the floating-point environment unchanged. After an exception the
/// other threads run the remaining parts; parts that no thread comes to are not run.
void parallel_for_neighbours(std::int64_t parts, void (*part)(void* context, std::int64_t index), void* context);

/// Does the same for a callable object.
template <typename F>
void parallel_for_neighbours(std::int64_t parts, F&& part) {
  using Function = std::remove_reference_t<F>;
  parallel_for_neighbours(
      parts, [](void* context, std::int64_t index) { (*static_cast<Function*>(context))(index); },
      const_cast<void*>(static_cast<const void*>(&part)));
}

}  // namespace attn::runtime
