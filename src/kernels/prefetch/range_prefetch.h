// src/kernels/prefetch/range_prefetch.h: prefetches strided ranges of memory, a few cache lines in each register tile.
#pragma once
#include "kernels/prefetch/prefetch.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace attn::kernels {

/// What the steps of a register tile prefetch: the line at `at`, then the one `step` bytes after it.
struct StepPrefetch {
  Address at;
  std::int64_t step;
  [[gnu::always_inline]] void operator()(const void*) {
    prefetch_l2_pinned(at);
    at += static_cast<Address>(step);
  }
};

/// `count` pieces of `bytes` bytes, `stride` bytes apart. Base null: none.
struct MemoryPieces {
  const void* base = nullptr;
  std::int64_t bytes = 0, stride = 0, count = 0;
};

/// Ranges of memory, whose cache lines are prefetched in order.
class PrefetchRanges {
 public:
  static constexpr int most_ranges = 8;
  PrefetchRanges() {}  // with `= default`, {} would clear all ranges first
  /// Of pieces with gaps the first lines come first, then the second lines, so that neighbours are equally far apart.
  /// What does not fit in is left out.
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

  /// `together` returns how many of the next lines are `step` bytes apart; `take` returns the address of the first and
  /// marks the next `count` lines as prefetched.
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
  /// `times` runs of `count` lines, `step` bytes apart; a run begins a line after the one before.
  struct Range {
    Address base;
    std::int64_t step, count, times;
  };

  Range ranges_[most_ranges];
  int count_ = 0, range_ = 0;
  std::int64_t done_ = 0, lines_ = 0;  // lines of the current run that are prefetched; lines that are left
};

/// Prefetches a few lines in each register tile, because bursts exceed the memory bandwidth and are dropped. Part of
/// peak in the backward pass of (32, 8, 64, 64) in f32 without prefetching, with a burst for each product, and this
/// way: .56, .58, .65; causal .35, .36, .43; bf16 .53 and .57. The forward pass gains 15 % over bursts.
class TilePrefetch {
 public:
  // What is read after the query tile, and what this block or the next one reads. The latter goes first.
  PrefetchRanges later, soon;

  /// Spreads `later` over `blocks` blocks of `tiles` register tiles, and `soon` over the tiles of a block.
  void begin(std::int64_t tiles, std::int64_t blocks) {
    tiles_ = tiles;
    later_share_ = later.lines() / (tiles * blocks) + 1;
    begin_block();
  }
  /// Called when `soon` is set for a block.
  void begin_block() {
    share_ = (later.lines() > 0 ? later_share_ : 0) + (soon.lines() > 0 ? soon.lines() / tiles_ + 1 : 0);
  }
  bool left() const { return share_ > 0; }

  /// Prefetches the share of a tile at once.
  void fetch() {
    if (share_ > 0) fetch_some();
  }
  /// Returns the share of a tile of `steps` steps, each of which prefetches one line, or the same again. If nothing
  /// is due, they prefetch `here`, which the tile reads. Time of the backward pass relative to lines before each tile,
  /// f32 / bf16: (32, 8, 64, 64) .90 / .97, (1, 12, 512, 64) .99 / .97, causal .96 / .98.
  ///  Fewer lines than `least_spread` are left for the next tiles, because taking a few costs as much as taking many.
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
  std::int64_t due_ = 0;    // lines that earlier tiles have left; below 0: have taken in advance
};

/// The share of `ranges` (null: none) that a tile prefetches in its steps.
[[gnu::always_inline]] inline StepPrefetch spread(TilePrefetch* ranges, std::int64_t steps, const void* here) {
  return ranges != nullptr ? ranges->spread(steps, here) : StepPrefetch{address_of(here), 0};
}

}  // namespace attn::kernels
