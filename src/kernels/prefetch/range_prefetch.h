// src/kernels/prefetch/range_prefetch.h: prefetches strided ranges of memory, a few cache lines at a time.
#pragma once
#include "kernels/prefetch/prefetch.h"

#include <algorithm>
#include <cstdint>

namespace attn::kernels {

/// Strided ranges of memory that are prefetched a few cache lines at a time.
class PrefetchRanges {
 public:
  static constexpr int most_ranges = 5;
  PrefetchRanges() {}  // with `= default`, {} would clear all ranges first
  /// Adds `rows` pieces of `bytes` bytes, `stride` bytes apart.
  void add(const void* base, std::int64_t bytes, std::int64_t stride, std::int64_t rows) {
    if (rows <= 0 || bytes <= 0) return;
    if (stride == bytes) bytes *= rows, rows = 1;
    ranges_[count_++] = {address_of(base), bytes, stride, rows};
    lines_ += (bytes + line - 1) / line * rows;
  }

  /// Returns the number of cache lines that are not yet prefetched.
  std::int64_t lines() const { return lines_; }

  /// `together` returns how many of the next lines are adjacent; `take` returns the address of the first and marks the
  /// next `count` lines as prefetched.
  std::int64_t together() const { return range_ < count_ ? (ranges_[range_].bytes - byte_ + line - 1) / line : 0; }
  Address take(std::int64_t count) {
    Range& range = ranges_[range_];
    const Address at = range.base + static_cast<Address>(byte_);
    lines_ -= count;
    byte_ += count * line;
    if (byte_ >= range.bytes) {
      byte_ = 0;
      range.base += static_cast<Address>(range.stride);
      if (--range.rows == 0) ++range_;
    }
    return at;
  }

  [[gnu::noinline]] void fetch(std::int64_t count) {
    for (std::int64_t here; count > 0 && lines_ > 0; count -= here) {
      here = std::min(count, together());
      Address at = take(here);
      for (const Address end = at + static_cast<Address>(here * line); at != end; at += line) prefetch_l2(at);
    }
  }

 private:
  static constexpr std::int64_t line = 64;
  struct Range {
    Address base;
    std::int64_t bytes, stride, rows;
  };

  Range ranges_[most_ranges];
  int count_ = 0, range_ = 0;
  std::int64_t byte_ = 0, lines_ = 0;
};

}  // namespace attn::kernels
