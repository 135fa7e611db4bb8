// src/kernels/attention/next_rows.h: tells which rows of memory the next block, query tile and head will read, so that
// the passes prefetch them (prefetch/range_prefetch.h).
//  All query tiles of a head read the head's keys, one tile after the other; the first one would wait for main memory.
// So each query tile prefetches its share of the next head's K and V, and the rows of Q and of the output of the next
// query tile. A large head is prefetched block by block instead.
#pragma once
#include "kernels/attention/backward_problem.h"
#include "kernels/attention/kv_rows.h"
#include "kernels/prefetch/range_prefetch.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>

namespace attn::kernels {

/// The rows of an operand, [batch][head][row] by strides. A null base means none.
struct OperandRows {
  const void* base;
  std::int64_t batch_stride, head_stride, row_stride, columns;

  OperandRows(const void* memory, const std::int64_t (&stride)[3], std::int64_t width)
      : base(memory), batch_stride(stride[0]), head_stride(stride[1]), row_stride(stride[2]), columns(width) {}
  OperandRows(const KvRows& rows, const std::int64_t (&stride)[2], std::int64_t width)
      : base(rows.base), batch_stride(stride[0]), head_stride(stride[1]), row_stride(rows.row_stride), columns(width) {}
};

/// Adds rows of an operand, whose elements have `bytes` bytes, to the ranges that are prefetched.
struct AddRows {
  PrefetchRanges& to;
  std::int64_t bytes;

  void operator()(const OperandRows& from, std::int64_t b, std::int64_t h, std::int64_t row, std::int64_t count) const {
    if (from.base == nullptr) return;
    const std::int64_t first = b * from.batch_stride + h * from.head_stride + row * from.row_stride;
    to.add({static_cast<const char*>(from.base) + bytes * first, bytes * from.columns, bytes * from.row_stride, count});
  }
};

/// Returns whether K and V of a head take more than 512 KiB, half of a common L2: those of the next head would evict
/// them.
inline bool is_large_head(const AttentionProblem& p, const Task& tile, std::int64_t bytes) {
  const std::int64_t keys = tile.sequence ? tile.sequence->keys_end - tile.sequence->keys_begin : p.k_rows;
  return keys * (p.dim + p.value_dim) * bytes > std::int64_t{1} << 19;
}

/// For a large head: adds what the block of keys [first, first + count) reads after its scores (V, and the `sums` to
/// which its products are added), and the keys of the next block. Time saved, by (B, H, T, D): forward pass (1, 16,
/// 2048, 128) 7 %; backward pass in bf16 1.4 %, (1, 1, 4096, 64) 10 %, causal 20 %.
inline void add_block(const AddRows& add, const AttentionProblem& p, const Task& tile, std::int64_t first,
                      std::int64_t count, std::initializer_list<MemoryPieces> sums = {}) {
  if (p.k.pages != nullptr || !is_large_head(p, tile, add.bytes)) return;
  add({p.v, p.v_stride, p.value_dim}, tile.batch, p.value_head(tile.head), first, count);
  for (const MemoryPieces& pieces : sums) add.to.add(pieces);
  add({p.k, p.k_stride, p.dim}, tile.batch, p.key_head(tile.head), first + count,
      std::min<std::int64_t>(p.keys_end(tile) - first - count, kv_block));
}

/// Adds the dense biases of the keys [first, end): a few lines of each query row, at the stride of a row of scores,
/// which the hardware prefetcher does not follow. (1, 16, 2048, 128) takes .95 of its time with bursts of prefetches
/// between the tiles.
inline void add_biases(PrefetchRanges& to, const AttentionProblem& p, const Task& tile, std::int64_t first,
                       std::int64_t end) {
  for (int n = 0; n < p.bias_count; ++n) {
    const BiasTerm& term = p.bias[n];
    const std::int64_t* stride = term.dense.stride;
    if (term.op != BiasOp::dense || stride[2] == 0 || stride[3] != 1 || tile.heads != 1) continue;
    const std::int64_t bytes = bytes_of(term.element),
                       at = tile.batch * stride[0] + tile.head * stride[1] + tile.row * stride[2] + first;
    to.add(
        {static_cast<const char*>(term.dense.data) + bytes * at, bytes * (end - first), bytes * stride[2], tile.rows});
  }
}

/// The head that the thread computes after this one; its batch is -1 if there is none.
struct HeadAfter {
  std::int64_t batch, head;

  HeadAfter(const AttentionProblem& p, const Task& tile) {
    const std::int64_t ahead = tile.head + tile.heads * tile.hints.heads_ahead;
    batch = tile.batch + ahead / p.q_heads;
    head = ahead % p.q_heads;
    if (batch > (tile.sequence ? tile.batch : p.batch - 1)) batch = -1;
  }
  bool there() const { return batch >= 0; }
};

/// Adds the tile's share of K and V of the next head: as large a part of the keys as the tile has of the head's work.
/// Returns the keys that the tile sees, over which the prefetching is spread.
inline std::int64_t add_next_head(const AddRows& add, const AttentionProblem& p, const Task& tile,
                                  const HeadAfter& next) {
  const Sequence* const sequence = tile.sequence;
  const std::int64_t keys = sequence ? sequence->keys_end - sequence->keys_begin : p.k_rows,
                     rows = sequence ? sequence->rows_end - sequence->rows_begin : p.q_rows,
                     row = tile.row - (sequence ? sequence->rows_begin : 0);
  // under a causal mask the work of a row grows with its index, and so does its share of the prefetching
  const bool causal = p.mask.count == 1 && p.mask.nodes[0].op == MaskOp::causal;
  const auto first_key = [&](std::int64_t i) {
    return (sequence ? sequence->keys_begin : 0) + (causal ? i * i / rows : i) * keys / rows;
  };
  const std::int64_t first = first_key(row), count = first_key(row + tile.rows) - first;
  const auto add_new = [&](const OperandRows& from, std::int64_t heads) {
    const std::int64_t head = p.shared_head(next.head, heads);
    if (next.batch != tile.batch || head != p.shared_head(tile.head, heads)) add(from, next.batch, head, first, count);
  };
  add_new({p.k, p.k_stride, p.dim}, p.k_heads);
  add_new({p.v, p.v_stride, p.value_dim}, p.v_heads);
  return causal ? (row + tile.rows) * keys / rows : keys;
}

/// For a window over a large head: adds the keys that the thread's next query tile sees and this one does not, and that
/// tile's rows. Returns the keys that a tile sees; 0: nothing is added.
inline std::int64_t add_next_window(const AddRows& add, const AttentionProblem& p, const Task& tile) {
  const std::int64_t b = tile.batch, next = tile.row - tile.hints.rows_ahead;
  if (p.mask.count != 1 || tile.heads != 1 || next < 0 || tile.sequence) return 0;
  const MaskNode& node = p.mask.nodes[0];
  if (node.op != MaskOp::window || node.left < 0 || node.right < 0) return 0;
  const auto first_key = [&](std::int64_t row) {
    return std::clamp(p.keys_begin(tile) + row + p.row_offset(tile, node.bottom_right) - node.left, p.keys_begin(tile),
                      p.keys_end(tile));
  };
  const std::int64_t first = first_key(next), count = first_key(tile.row) - first,
                     rows = std::min(tile.hints.rows_ahead, tile.rows);
  add({p.k, p.k_stride, p.dim}, b, p.key_head(tile.head), first, count);
  add({p.v, p.v_stride, p.value_dim}, b, p.value_head(tile.head), first, count);
  add({p.q, p.q_stride, p.dim}, b, tile.head, next, rows);
  add({p.out, p.out_stride, p.value_dim}, b, tile.head, next, rows);
  return node.left + node.right + tile.rows;
}

/// Adds what follows a query tile of the forward pass; the next one has at most `tile_rows` rows. Returns the keys over
/// which the prefetching is spread; 0: nothing is added.
[[gnu::noinline]] inline std::int64_t add_next_tile(const AddRows& add, const AttentionProblem& p, const Task& tile,
                                                    std::int64_t tile_rows) {
  // below this size the whole call may be in the caches already
  constexpr std::int64_t least_bytes = std::int64_t{1} << 21;
  const Sequence* const sequence = tile.sequence;
  if (p.k.pages != nullptr) return 0;
  if (is_large_head(p, tile, add.bytes)) return add_next_window(add, p, tile);
  if (p.batch * p.q_heads * p.q_rows * (p.dim + p.value_dim) * add.bytes < least_bytes) return 0;
  const HeadAfter next_head(p, tile);
  const std::int64_t keys = next_head.there() ? add_next_head(add, p, tile, next_head) : p.k_rows;
  const auto add_rows = [&](std::int64_t b, std::int64_t h, std::int64_t row, std::int64_t rows) {
    const std::int64_t zero = sequence ? sequence->rows_begin : 0, count = std::min(tile_rows, rows - row);
    add({p.q, p.q_stride, p.dim}, b, h, zero + row, count);
    add({p.out, p.out_stride, p.value_dim}, b, h, zero + row, count);
  };
  // only rows of the next query tile: prefetched a whole head ahead, they would evict data in use
  const std::int64_t rows = sequence ? sequence->rows_end - sequence->rows_begin : p.q_rows,
                     next = tile.row - (sequence ? sequence->rows_begin : 0) - tile.hints.rows_ahead;
  if (next >= 0) {
    add_rows(tile.batch, tile.head, next, rows);
  } else if (next_head.there()) {
    const std::int64_t whole = (rows + tile_rows - 1) / tile_rows * tile_rows;
    add_rows(next_head.batch, next_head.head, (next % whole + whole) % whole, rows);
  }
  return keys;
}

/// Adds what a step of the backward pass reads at its end, its rows of dQ and its share of dK and dV, and what follows
/// it: the next head's K and V, and the next step's rows. `elements`: the number of elements of a product that one
/// register tile computes.
inline void begin_step(TilePrefetch& prefetch, const AttentionGradient& g, const Task& tile, std::int64_t element_bytes,
                       std::int64_t elements) {
  const AttentionProblem& p = g.problem;
  const AddRows add{prefetch.later, element_bytes};
  const std::int64_t after = tile.row + tile.rows, first_key = tile.row * p.k_rows / p.q_rows,
                     keys = after * p.k_rows / p.q_rows - first_key;
  add({g.dq, g.dq_stride, p.dim}, tile.batch, tile.head, tile.row, tile.rows);
  add({g.dk, g.dk_stride, p.dim}, tile.batch, p.key_head(tile.head), first_key, keys);
  add({g.dv, g.dv_stride, p.value_dim}, tile.batch, p.value_head(tile.head), first_key, keys);
  const HeadAfter next(p, tile);
  const bool follows = next.there() && p.k.pages == nullptr && !is_large_head(p, tile, add.bytes);
  if (follows) add_next_head(add, p, tile, next);
  const bool here = after < p.rows_end(tile);  // whether the next step belongs to this head
  if (here || follows) {
    const std::int64_t b = here ? tile.batch : next.batch, h = here ? tile.head : next.head, row = here ? after : 0,
                       rows = std::min<std::int64_t>(p.q_rows - row, query_block);
    add({p.q, p.q_stride, p.dim}, b, h, row, rows);
    add({g.dout, g.dout_stride, p.value_dim}, b, h, row, rows);
    add({p.out, p.out_stride, p.value_dim}, b, h, row, rows);
  }
  const std::int64_t blocks = 1 + tile.row * p.k_rows / (p.q_rows * kv_block);  // causal rows see no more blocks
  const std::int64_t products = 2 * kv_block * query_block + p.dim * query_block + kv_block * (p.dim + p.value_dim);
  prefetch.begin(products / elements, blocks);
}

}  // namespace attn::kernels
