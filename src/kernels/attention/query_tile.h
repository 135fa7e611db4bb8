// src/kernels/attention/query_tile.h: lays out the scratch memory of a query tile in the forward pass, with one row per
// lane.
#pragma once
#include "kernels/attention/arena.h"
#include "kernels/attention/problem.h"
#include "kernels/attention/block_and_tile_sizes.h"

#include <cstddef>
#include <cstdint>

namespace attn::kernels {

class TilePrefetch;

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
