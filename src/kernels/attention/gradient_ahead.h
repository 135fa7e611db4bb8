// src/kernels/attention/gradient_ahead.h: while 64 rows of the backward pass compute, the memory that comes next is asked for.
#pragma once
#include "kernels/attention/gradient.h"
#include "kernels/attention/next_head.h"

namespace attn::kernels {

/// Where this step's dQ and its share of dK and dV go; then the next head's K and V, and the rows of the next step.
class GradientAhead {
 public:
  /// `lanes`: of a vector.
  GradientAhead(const AttentionGradient& g, const GradientRows& rows, const LaneMap& map, std::int64_t element_bytes, std::int64_t lanes)
      : bytes_(element_bytes), next_(g.problem, map, static_cast<std::size_t>(element_bytes), NextHead::Pass::backward) {
    const AttentionProblem& p = g.problem;
    const std::int64_t after = rows.row + rows.rows;
    const bool here = after < p.rows_end(rows.batch);  // the next step is of this head
    if (here || next_.batch() >= 0) {
      const std::int64_t b = here ? rows.batch : next_.batch(), h = here ? rows.head : next_.head(), first = here ? after : 0;
      const std::int64_t count = p.q_rows - first < query_block ? p.q_rows - first : query_block;
      add(next_, p.q, p.q_stride, {b, h, first, count}, p.dim);
      add(next_, g.dout, g.dout_stride, {b, h, first, count}, p.value_dim);
      add(next_, p.out, p.out_stride, {b, h, first, count}, p.value_dim);
    }
    const std::int64_t first_key = rows.row * p.k_rows / p.q_rows, keys = after * p.k_rows / p.q_rows - first_key;
    add(results_, g.dq, g.dq_stride, {rows.batch, rows.head, rows.row, rows.rows}, p.dim);
    add(results_, g.dk, g.dk_stride, {rows.batch, rows.head / (p.q_heads / p.k_heads), first_key, keys}, p.dim);
    add(results_, g.dv, g.dv_stride, {rows.batch, rows.head / (p.q_heads / p.v_heads), first_key, keys}, p.value_dim);
    const std::int64_t blocks = 1 + rows.row * p.k_rows / (p.q_rows * key_block);  // causal rows have no more
    const std::int64_t tiles = (16 * query_block + p.dim * query_block / 8 + 8 * (p.dim + p.value_dim)) / (2 * lanes);  // of a block, 8 by two vectors
    lines_ = (results_.lines() + next_.lines()) / (tiles * blocks) + 1;
  }

  /// A few lines a tile: bursts come faster than memory answers and are dropped. At (32, 8, 64, 64) in f32 .56 of the peak without, .58 with a
  /// burst a product, .65 this way; causal .35, .36, .43; bf16 .53 and .57, causal .32 and .36.
  void fetch() {
    if (results_.lines() > 0) results_.fetch(lines_);
    else if (next_.lines() > 0) next_.fetch(lines_);
  }
  void fetch_rest() { next_.fetch(next_.lines()); }

 private:
  void add(FetchAhead& to, const void* base, const std::int64_t (&stride)[3], const GradientRows& rows, std::int64_t columns) const {
    if (base == nullptr) return;
    to.add(static_cast<const char*>(base) + bytes_ * (rows.batch * stride[0] + rows.head * stride[1] + rows.row * stride[2]), bytes_ * columns, bytes_ * stride[2], rows.rows);
  }

  std::int64_t bytes_, lines_;
  FetchAhead results_;
  NextHead next_;
};

}  // namespace attn::kernels
