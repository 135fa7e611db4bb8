// src/kernels/attention/prefetch/backward_prefetch.h: prefetches the operands of the next products of the backward pass
// while a step is computed.
#pragma once
#include "kernels/attention/backward_problem.h"
#include "kernels/attention/prefetch/next_head_prefetch.h"

#include <algorithm>

namespace attn::kernels {

/// The addresses that the steps of a tile prefetch: the first, and the distance to the next.
struct StepPrefetch {
  Address at;
  std::int64_t step;
};

/// Prefetches the rows of dQ and of this step's share of dK and dV, then the next head's K and V and the next step's
/// rows.
class BackwardTilePrefetch {
 public:
  /// `elements`: elements of products per tile.
  BackwardTilePrefetch(const AttentionGradient& g, const GradientRows& rows, const QueryTile& tile,
                       std::int64_t element_bytes, std::int64_t elements)
      : g_(g), rows_(rows), bytes_(element_bytes),
        next_(g.problem, tile, static_cast<std::size_t>(element_bytes), NextHeadPrefetch::Pass::backward) {
    const AttentionProblem& p = g.problem;
    const std::int64_t after = rows.row + rows.rows;
    const bool here = after < p.rows_end(rows.batch);  // whether the next step belongs to this head
    if (here || next_.batch() >= 0) {
      const std::int64_t b = here ? rows.batch : next_.batch(), h = here ? rows.head : next_.head(),
                         first = here ? after : 0;
      const std::int64_t count = p.q_rows - first < query_block ? p.q_rows - first : query_block;
      add(next_, p.q, p.q_stride, {b, h, first, count}, p.dim);
      add(next_, g.dout, g.dout_stride, {b, h, first, count}, p.value_dim);
      add(next_, p.out, p.out_stride, {b, h, first, count}, p.value_dim);
    }
    const std::int64_t first_key = rows.row * p.k_rows / p.q_rows, keys = after * p.k_rows / p.q_rows - first_key;
    add(results_, g.dq, g.dq_stride, {rows.batch, rows.head, rows.row, rows.rows}, p.dim);
    add(results_, g.dk, g.dk_stride, {rows.batch, p.key_head(rows.head), first_key, keys}, p.dim);
    add(results_, g.dv, g.dv_stride, {rows.batch, p.value_head(rows.head), first_key, keys}, p.value_dim);
    const std::int64_t blocks = 1 + rows.row * p.k_rows / (p.q_rows * kv_block);  // causal rows see no more blocks
    // tiles per block
    tiles_ = (2 * kv_block * query_block + p.dim * query_block + kv_block * (p.dim + p.value_dim)) / elements;
    share_ = lines_ = (results_.lines() + next_.lines()) / (tiles_ * blocks) + 1;
    exceeds_llc_ = p.k_rows * (p.dim + p.value_dim) * bytes_ > NextHeadPrefetch::most_bytes;
  }

  /// Memory to which a block's sums are added: `count` pieces of `bytes`, `stride` apart. Base null: none.
  struct Sums {
    const void* base;
    std::int64_t bytes, stride, count;
  };

  /// Begins the block of keys [first, first + count). For heads that exceed the caches it prefetches what the block
  /// needs after its scores, and the keys of the next block. Time relative to no prefetching, bf16: (1, 16, 2048, 128)
  /// 0.986, (1, 1, 4096, 64) 0.9, causal 0.8.
  void begin_block(std::int64_t first, std::int64_t count, const Sums& dv, const Sums& dk) {
    if (!exceeds_llc_) return;
    const AttentionProblem& p = g_.problem;
    const std::int64_t left = p.keys_end(rows_.batch) - first - count, kv = p.value_head(rows_.head),
                       kk = p.key_head(rows_.head);
    const std::int64_t k_stride[3] = {p.k_stride[0], p.k_stride[1], p.k.row_stride},
                       v_stride[3] = {p.v_stride[0], p.v_stride[1], p.v.row_stride};
    block_ = {};
    add(block_, p.v.base, v_stride, {rows_.batch, kv, first, count}, p.value_dim);
    for (const Sums& sums : {dv, dk})
      if (sums.base != nullptr) block_.add(sums.base, sums.bytes, sums.stride, sums.count);
    add(block_, p.k.base, k_stride, {rows_.batch, kk, first + count, left < kv_block ? left : kv_block}, p.dim);
    block_lines_ = block_.lines() / tiles_ + 1;
    share_ = lines_ + block_lines_;
  }

  /// Prefetches a few lines per tile, because bursts exceed the memory bandwidth and are dropped. (32, 8, 64, 64) in
  /// f32 reaches 0.56 of peak without prefetching, 0.58 with one burst per product, 0.65 this way; causal 0.35, 0.36,
  /// 0.43; bf16 0.53 and 0.57, causal 0.32 and 0.36.
  void fetch() {
    if (share_ > 0) fetch_some();
  }
  /// The same for a tile of `steps` steps, each of which prefetches one line, or the same line again. If nothing is
  /// left to prefetch, they prefetch `here`, which the tile reads. Time relative to a few lines before each tile, f32 /
  /// bf16: (32, 8, 64, 64) 0.90 / 0.97, (1, 12, 512, 64) 0.99 / 0.97, causal 0.96 / 0.98, (1, 16, 2048, 128) 0.97 / 1.
  /// Fewer lines than `least_spread` are left for the next tiles, because taking a few costs as much as taking many.
  [[gnu::always_inline]] StepPrefetch spread(std::int64_t steps, const void* here) {
    due_ += share_;
    if (due_ < least_spread || steps <= 0) return {address_of(here), 0};
    return spread_due(steps, here);
  }
  void fetch_rest() { next_.fetch(next_.lines()); }

 private:
  /// Not inlined, so that the calling tiles keep their registers.
  [[gnu::noinline]] void fetch_some() {
    if (results_.lines() > 0) results_.fetch(lines_);
    else next_.fetch(lines_);
    block_.fetch(block_lines_);
    if (results_.lines() + next_.lines() + block_.lines() == 0) share_ = 0;
  }

  [[gnu::noinline]] StepPrefetch spread_due(std::int64_t steps, const void* here) {
    PrefetchRanges& from = block_.lines() > 0     ? block_
                           : results_.lines() > 0 ? results_
                                                  : static_cast<PrefetchRanges&>(next_);
    if (from.lines() == 0) {
      share_ = due_ = 0;
      return {address_of(here), 0};
    }
    due_ = std::min(due_, 3 * steps);
    const std::int64_t count = std::min({due_, steps, from.together()});
    due_ -= count;
    return {from.take(count),
            static_cast<std::int64_t>(static_cast<unsigned>(count * 64) / static_cast<unsigned>(steps))};
  }

  void add(PrefetchRanges& to, const void* base, const std::int64_t (&stride)[3], const GradientRows& rows,
           std::int64_t columns) const {
    if (base == nullptr) return;
    to.add(static_cast<const char*>(base) +
               bytes_ * (rows.batch * stride[0] + rows.head * stride[1] + rows.row * stride[2]),
           bytes_ * columns, bytes_ * stride[2], rows.rows);
  }

  const AttentionGradient& g_;
  GradientRows rows_;
  static constexpr std::int64_t least_spread = 16;
  std::int64_t bytes_, lines_, tiles_, block_lines_ = 0;
  std::int64_t share_;    // lines that a tile prefetches; 0: nothing is left
  std::int64_t due_ = 0;  // lines that earlier tiles have left
  bool exceeds_llc_;
  PrefetchRanges results_, block_;
  NextHeadPrefetch next_;
};

}  // namespace attn::kernels
