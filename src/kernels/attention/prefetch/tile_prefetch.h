// src/kernels/attention/prefetch/tile_prefetch.h: what a register tile of the forward pass prefetches between its
// products: lines of ranges, and of dense biases.
#pragma once
#include "kernels/attention/query_tile.h"
#include "kernels/prefetch/range_prefetch.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace attn::kernels {

/// Dense biases of a block: a few lines of each query row, one row of scores apart, which the hardware prefetcher does
/// not predict. A register tile over the keys of a block has as many steps as the query tile has rows, and prefetches
/// one line of each: (1, 16, 2048, 128) takes .95 of the time of bursts between tiles.
class BiasPrefetch {
 public:
  BiasPrefetch() {}  // with `= default`, {} would clear all terms first
  BiasPrefetch(const AttentionProblem& problem, const QueryTile& tile, std::int64_t first, std::int64_t end) {
    for (int n = 0; n < problem.bias_count && count_ < most_terms && first < end; ++n) {
      const BiasTerm& term = problem.bias[n];
      const std::int64_t* stride = term.dense.stride;
      if (term.op != BiasOp::dense || stride[2] == 0 || stride[3] != 1 || tile.heads != 1) continue;
      const std::int64_t bytes = term.element == Element::f64 ? 8 : term.element == Element::f32 ? 4 : 2;
      const Address at =
          address_of(term.dense.data) +
          static_cast<Address>(bytes * (tile.batch * stride[0] + tile.head * stride[1] + tile.row * stride[2] + first));
      terms_[count_++] = {at / 64 * 64, at + static_cast<Address>(bytes * (end - first)), bytes * stride[2]};
    }
  }
  bool left() const { return count_ > 0; }
  /// The next line of the first row; how far the rows are apart.
  Address take(std::int64_t& step) {
    Term& term = terms_[count_ - 1];
    const Address at = term.at;
    step = term.step;
    term.at += 64;
    if (term.at >= term.end) --count_;
    return at;
  }

 private:
  static constexpr int most_terms = 4;
  struct Term {
    Address at, end;
    std::int64_t step;
  };
  Term terms_[most_terms];
  int count_ = 0;
};

/// What each register tile of a block prefetches: a few lines, because bursts come faster than memory answers.
/// (8, 12, 512, 64) gains 9 %, a window of 256 too.
class TilePrefetch {
 public:
  PrefetchRanges* next;
  BiasPrefetch biases;
  std::int64_t next_lines = 0;
  Address at = 0;  // of the tile: each of its steps prefetches this line and goes on by `step`, unless that is 0
  std::int64_t step = 0;
  std::int64_t due = 0;  // lines that the tiles before have left

  void fetch() { next->fetch(next_lines); }
  /// The same for a tile of so many steps, between which many lines are spread: (32, 8, 64, 64) gains 15 % over bursts.
  /// Fewer than 16 lines would lose 1 %: they wait for those of the next tiles. A tile of fewer vectors than four is
  /// short: what waited is prefetched before it.
  template <int VECTORS>
  void spread(std::int64_t steps) {
    step = 0;
    due += next_lines;
    if (due >= least_spread) VECTORS == 4 ? spread_due(steps) : next->fetch(std::exchange(due, 0));
  }
  /// The same for a tile over keys.
  template <int VECTORS>
  void spread_keys(std::int64_t keys) {
    if (VECTORS < 4 || !biases.left()) return spread<VECTORS>(keys);
    due += next_lines;
    at = biases.take(step);
  }

 private:
  static constexpr std::int64_t least_spread = 16;
  void spread_due(std::int64_t steps) {
    const std::int64_t lines = std::exchange(due, 0), count = std::min(lines, steps);
    if (count < least_spread || next->together() < count) return next->fetch(lines);
    at = next->take(count);
    step = count * 64 / steps;
  }
};

}  // namespace attn::kernels
