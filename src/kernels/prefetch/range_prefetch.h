// src/kernels/prefetch/range_prefetch.h: prefetches strided ranges of memory, a few cache lines in each register tile.
#pragma once
#include "kernels/prefetch/prefetch_line.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace attn::kernels {

/// The prefetches of a register tile: each of its steps along k prefetches the line at `at` and then adds `step` bytes
/// to `at`.
struct StepPrefetch {
  Address at;
  std::int64_t step;
  [[gnu::always_inline]] void operator()(const void*) {
    prefetch_l2_pinned(at);
    at += static_cast<Address>(step);
  }
};

/// Memory of `count` pieces, each of `bytes` bytes, `stride` bytes apart. A null base means none.
struct MemoryPieces {
  const void* base = nullptr;
  std::int64_t bytes = 0, stride = 0, count = 0;
};

/// A list of memory ranges. Their cache lines are prefetched in order.
class PrefetchRanges {
 public:
  static constexpr int most_ranges = 8;
  PrefetchRanges() {}  // with `= default`, {} would clear all ranges first
  /// Adds a range. If its pieces have gaps, the first lines of all pieces come first, then their second lines and so
  /// on: adjacent lines of the order are then `stride` bytes apart, except where a piece's next line begins. Ranges
  /// beyond most_ranges are left out.
  void add(const MemoryPieces& from) {
    if (from.base == nullptr || from.count <= 0 || from.bytes <= 0 || count_ == most_ranges) return;
    const bool adjacent = from.stride == from.bytes;
    const std::int64_t lines = ((adjacent ? from.bytes * from.count : from.bytes) + line - 1) / line;
    Range& range = ranges_[count_++];
    range = {address_of(from.base), line, lines, 1};
    if (!adjacent) range.step = from.stride, range.count = from.count, range.times = lines;
    lines_ += range.count * range.times;
  }
  void clear() { count_ = range_ = 0, done_ = lines_ = 0; }

  /// Returns the number of cache lines that are not yet prefetched.
  std::int64_t lines() const { return lines_; }

  /// `together` returns how many of the next lines are `step` bytes apart. `take` returns the address of the next line
  /// and marks `count` lines, at most together(), as prefetched.
  std::int64_t together() const { return range_ < count_ ? ranges_[range_].count - done_ : 0; }
  std::int64_t step() const { return ranges_[range_].step; }
  Address take(std::int64_t count) {
    Range& range = ranges_[range_];
    const Address at = range.base + static_cast<Address>(done_ * range.step);
    lines_ -= count;
    done_ += count;
    if (done_ == range.count) {
      done_ = 0;
      range.base += line;
      if (--range.times == 0) ++range_;
    }
    return at;
  }

  [[gnu::noinline]] void fetch(std::int64_t count) {
    for (std::int64_t here; count > 0 && lines_ > 0; count -= here) {
      here = std::min(count, together());
      const auto apart = static_cast<Address>(step());
      Address at = take(here);
      for (const Address end = at + static_cast<Address>(here) * apart; at != end; at += apart) prefetch_l2(at);
    }
  }

  static constexpr std::int64_t line = 64;

 private:
  /// The range has `times` runs. A run is `count` lines that are `step` bytes apart, and begins one line after the
  /// previous run began.
  struct Range {
    Address base;
    std::int64_t step, count, times;
  };

  Range ranges_[most_ranges];
  int count_ = 0, range_ = 0;
  std::int64_t done_ = 0, lines_ = 0;  // done_: prefetched lines of the current run; lines_: lines that are left
};

/// Prefetches a few lines in each register tile, because the memory system drops some of a burst of prefetches.
/// Fraction of peak FLOP/s in the backward pass of (B, H, T, D) = (32, 8, 64, 64), f32: without prefetching .56, with a
/// burst for each product .58, with this class .65; causal .35, .36, .43; bf16 .53 with bursts, .57 with this class.
/// The forward pass gains 15 % over bursts.
class TilePrefetch {
 public:
  // `later`: what is read after this query tile. `soon`: what this block or the next one reads; it is prefetched first.
  PrefetchRanges later, soon;

  /// Begins a query tile: spreads `later` over `blocks` blocks of `tiles` register tiles, and `soon` over the tiles of
  /// a block.
  void begin(std::int64_t tiles, std::int64_t blocks) {
    tiles_ = tiles;
    later_share_ = later.lines() / (tiles * blocks) + 1;
    begin_block();
  }
  /// Must be called after `soon` was set for a block.
  void begin_block() {
    share_ = (later.lines() > 0 ? later_share_ : 0) + (soon.lines() > 0 ? soon.lines() / tiles_ + 1 : 0);
  }
  bool left() const { return share_ > 0; }

  /// Prefetches the share of one register tile at once.
  void fetch() {
    if (share_ > 0) fetch_some();
  }
  /// Returns what the steps of a register tile prefetch: the tile's share of the lines, spread over its `steps` steps
  /// (several steps may prefetch the same line). If nothing is due, the steps prefetch `here`, which the tile reads.
  /// Time of the backward pass relative to prefetching a tile's lines before it, f32 / bf16: (32, 8, 64, 64) .90 / .97,
  /// (1, 12, 512, 64) .99 / .97, causal .96 / .98.
  ///  If fewer than `least_spread` lines are due, or the tile has fewer steps, the lines are left for the next tiles,
  /// because taking a few costs as much as taking many.
  [[gnu::always_inline]] StepPrefetch spread(std::int64_t steps, const void* here) {
    due_ += share_;
    if (std::min(due_, steps) < least_spread) return {address_of(here), 0};
    return spread_due(steps, here);
  }

 private:
  /// Not inlined, so that the calling tiles keep their registers.
  [[gnu::noinline]] void fetch_some() {
    (soon.lines() > 0 ? soon : later).fetch(share_);
    if (soon.lines() + later.lines() == 0) share_ = 0;
  }
  [[gnu::noinline]] StepPrefetch spread_due(std::int64_t steps, const void* here) {
    PrefetchRanges& from = soon.lines() > 0 ? soon : later;
    if (from.lines() == 0) {
      share_ = due_ = 0;
      return {address_of(here), 0};
    }
    const std::int64_t step = from.step(), most = std::min(steps, from.together());
    if (step == PrefetchRanges::line) {
      const std::int64_t count = std::min(due_, most);
      due_ -= count;
      return {from.take(count), static_cast<std::int64_t>(static_cast<unsigned>(count * PrefetchRanges::line) /
                                                          static_cast<unsigned>(steps))};
    }
    if (most == steps) {  // one line for each step; the next tiles take less
      due_ -= steps;
      return {from.take(steps), step};
    }
    from.fetch(std::exchange(due_, 0));
    return {address_of(here), 0};
  }

  static constexpr std::int64_t least_spread = 16;
  std::int64_t tiles_ = 1, later_share_ = 0;
  std::int64_t share_ = 0;  // lines that a tile prefetches; 0: nothing is left
  std::int64_t due_ = 0;    // lines that earlier tiles left; below 0: lines that they took in advance
};

/// Returns what the steps of a register tile prefetch of `ranges`; null: only `here`, which the tile reads.
[[gnu::always_inline]] inline StepPrefetch spread(TilePrefetch* ranges, std::int64_t steps, const void* here) {
  return ranges != nullptr ? ranges->spread(steps, here) : StepPrefetch{address_of(here), 0};
}

}  // namespace attn::kernels
