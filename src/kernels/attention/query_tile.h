// src/kernels/attention/query_tile.h: describes a tile of query rows, one row per lane, and the scratch memory of its
// forward pass.
#pragma once
#include "kernels/attention/arena.h"
#include "kernels/attention/problem.h"
#include "kernels/attention/block_sizes.h"

#include <cstddef>
#include <cstdint>

namespace attn::kernels {

class TilePrefetch;

/// The query rows in the lanes: rows [row, row + rows) of heads [head, head + heads), head after head. The heads share
/// a head of K and V, so that a group of query heads fills the lanes in decode.
struct QueryTile {
  std::int64_t batch = 0, head = 0, heads = 1, row = 0, rows = 0;
  std::int64_t count() const { return heads * rows; }
  /// Calls piece(first lane, lanes, offset of the first lane's row, stride between rows) for each range of lanes whose
  /// rows are equally spaced in an array with these strides.
  template <class F>
  void for_each_piece(const std::int64_t (&stride)[3], F&& piece) const {
    const std::int64_t start = batch * stride[0] + head * stride[1] + row * stride[2];
    if (rows == 1) return piece(std::int64_t{0}, heads, start, stride[1]);
    for (std::int64_t n = 0; n < heads; ++n) piece(n * rows, rows, start + n * stride[1], stride[2]);
  }
};

/// Scratch memory of a query tile. [D][R] means that R rows are adjacent, so that a vector holds one element of
/// adjacent rows.
template <typename T, int ROWS = query_tile_rows<T>>
struct QueryTileScratch {
  static constexpr int rows = ROWS;

  T* q = nullptr;      // [D][R]   q * scale
  T* s = nullptr;      // [64][R]  scores of the block, then its weights
  T* extra = nullptr;  // [64][R]  a dense bias, transposed
  T* o = nullptr;      // [Dv][R]  output of the split, except in decode
  // [Dv][R]  rows that are written to memory next; in decode the output of the split (DecodeOutput)
  T* block = nullptr;
  T* o_total = nullptr;  // [Dv][R]  output of the earlier splits; in decode [rows][columns]
  T* m = nullptr;        // [R]      maximum of the split
  T* l = nullptr;        // [R]      sum of the split
  T* alpha = nullptr;    // [R]      new maximum while scores are computed, then the factor of the earlier sums
  T* m_total = nullptr;  // [R]
  T* l_total = nullptr;  // [R]
  // [R]      subtracted from the scores for the weights of the block: m, or 0 if no key was seen
  T* reference = nullptr;
  T* sum = nullptr;               // [R]      sum of the block's weights
  TilePrefetch* ahead = nullptr;  // what tiles prefetch, or null

  QueryTileScratch() = default;
  QueryTileScratch(Arena& arena, std::int64_t dim, std::int64_t value_dim) {
    const auto take = [&arena](std::int64_t count) { return arena.take<T>(count * rows); };
    q = take(dim);
    s = take(kv_block);
    extra = take(kv_block);
    o = take(value_dim);
    block = take(value_dim);
    o_total = take(value_dim);
    m = take(1);
    l = take(1);
    alpha = take(1);
    m_total = take(1);
    l_total = take(1);
    reference = take(1);
    sum = take(1);
  }
};

}  // namespace attn::kernels
