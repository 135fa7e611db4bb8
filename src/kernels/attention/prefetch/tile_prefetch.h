// src/kernels/attention/prefetch/tile_prefetch.h: chooses what a register tile of the forward pass prefetches between
// its products: lines of ranges, and of dense biases.
#pragma once
#include "kernels/attention/query_tile.h"
#include "kernels/prefetch/range_prefetch.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace attn::kernels {

/// Prefetches the dense biases of a block: a few lines of each query row, at the stride of a row of scores, which the
/// hardware prefetcher does not follow. A register tile over the keys of a block has as many steps as the query tile
/// has rows, and prefetches one line of each row: (1, 16, 2048, 128) takes 0.95 of the time with bursts between tiles.
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
  /// Returns the next line of the first row, and sets the distance between rows.
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

/// Chooses a few lines for each register tile of a block, because bursts exceed the memory bandwidth. (8, 12, 512, 64)
/// gains 9 %, also with a window of 256.
class TilePrefetch {
 public:
  PrefetchRanges* next;
  BiasPrefetch biases;
  std::int64_t next_lines = 0;
  // for the current tile: each of its steps prefetches this line and advances by `step`, unless that is 0
  Address at = 0;
  std::int64_t step = 0;
  std::int64_t due = 0;  // lines that earlier tiles have left

  void fetch() { next->fetch(next_lines); }
  /// The same for a tile of many steps, between which the lines are spread: (32, 8, 64, 64) gains 15 % over bursts.
  /// Fewer than 16 lines would lose 1 %, so they are left for the next tiles. A tile of fewer than four vectors is
  /// short: deferred lines are prefetched before it.
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
