// src/kernels/attention/tiles/prefill_pv-inl.h: computes PV of a query tile (prefill): elements of V as broadcasts,
// query rows in the lanes.
#if defined(ATTN_PREFILL_PV_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_PREFILL_PV_INL_H
#undef ATTN_PREFILL_PV_INL_H
#else
#define ATTN_PREFILL_PV_INL_H
#endif

#include "kernels/prefetch/range_prefetch.h"
#include "kernels/attention/query_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// How a register tile's sum over its keys is added to the output.
enum class Accumulate {
  first,    // o = chain: the first block
  rescale,  // o = fma(o, alpha, chain)
};

/// A register tile of COLUMNS value columns x VECTORS: a chain of FMAs over the keys, accumulated into the split's
/// output (fresh: the first block). The lines of `ahead` are prefetched between the products.
template <typename T, int COLUMNS, int VECTORS>
HWY_INLINE void output_tile(const T* HWY_RESTRICT p, const T* const* v_rows, std::int64_t column, int keys,
                            T* HWY_RESTRICT o, const T* HWY_RESTRICT alpha, bool fresh,
                            const TilePrefetch* ahead = nullptr) {
  const Tag<T> d;
  constexpr int R = query_tile_rows<T>, N = lanes<T>;
  Vector<T> sum[COLUMNS][VECTORS];
  ATTN_UNROLL_FOR (int c = 0; c < COLUMNS; ++c)
    ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) sum[c][v] = hn::Zero(d);
  const auto add = [&](int j) __attribute__((always_inline)) HWY_ATTR {
    Vector<T> weight[VECTORS];
    ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) weight[v] = hn::Load(d, p + j * R + v * N);
    const T* value = v_rows[j] + column;
    ATTN_UNROLL_FOR (int c = 0; c < COLUMNS; ++c) {
      const auto x = hn::Set(d, value[c]);
      ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) sum[c][v] = hn::MulAdd(x, weight[v], sum[c][v]);
    }
  };
  int j = 0;
  if (VECTORS == 4 && ahead && ahead->step != 0) {
    const auto step = static_cast<Address>(ahead->step);
    for (Address at = ahead->at; j < keys; ++j, at += step) {
      prefetch_l2(at);
      add(j);
    }
  }
  _Pragma("GCC unroll 2") for (; j < keys; ++j) add(j);
  ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) {
    const auto a = hn::Load(d, alpha + v * N);
    ATTN_UNROLL_FOR (int c = 0; c < COLUMNS; ++c) {
      T* place = o + c * R + v * N;
      hn::Store(fresh ? sum[c][v] : hn::MulAdd(hn::Load(d, place), a, sum[c][v]), d, place);
    }
  }
}

template <typename T, int VECTORS>
HWY_NOINLINE void output_columns(const T* p, const T* const* v_rows, int keys, std::int64_t c, std::int64_t value_dim,
                                 T* o, const T* alpha, bool fresh, TilePrefetch* ahead) {
  constexpr int R = query_tile_rows<T>;
  constexpr int most = tile_keys(VECTORS, registers);
  for (; c + most <= value_dim; c += most) {
    if (ahead) ahead->template spread<VECTORS>(keys);
    output_tile<T, most, VECTORS>(p, v_rows, c, keys, o + c * R, alpha, fresh, ahead);
  }
  for (; c + 4 <= value_dim; c += 4) output_tile<T, 4, VECTORS>(p, v_rows, c, keys, o + c * R, alpha, fresh);
  for (; c + 2 <= value_dim; c += 2) output_tile<T, 2, VECTORS>(p, v_rows, c, keys, o + c * R, alpha, fresh);
  for (; c < value_dim; ++c) output_tile<T, 1, VECTORS>(p, v_rows, c, keys, o + c * R, alpha, fresh);
}

/// Computes keys [0, keys) of the block, from weight row `row`, for the vectors [first, last), into `o` from value
/// column `column` on.
template <typename T>
HWY_INLINE void output_block(const QueryTileScratch<T>& scratch, const T* const* v_rows, int keys, std::int64_t column,
                             std::int64_t value_dim, int row, int first, int last, bool fresh) {
  constexpr int R = query_tile_rows<T>, N = lanes<T>;
  for_each_tile(first, last, [&]<int V>(int v) HWY_ATTR {
    output_columns<T, V>(scratch.s + row * R + v * N, v_rows, keys, column, value_dim, scratch.o + v * N,
                         scratch.alpha + v * N, fresh, scratch.ahead);
  });
}

/// Whether a target has register tiles for the edges of a causal mask or a window: query tiles of four vectors, and
/// registers for all of them.
template <typename T>
inline constexpr bool edge_tiles = query_tile_vectors<T> == 4 && tile_vectors == 4;

/// Keys [key, end) of a tile over an edge: the vectors [FIRST, LAST) take part.
template <typename T, int COLUMNS, int FIRST, int LAST>
HWY_INLINE void edge_keys(const T* HWY_RESTRICT p, const T* const* v_rows, std::int64_t column, int key, int end,
                          Vector<T> (&sum)[COLUMNS][4]) {
  const Tag<T> d;
  constexpr int R = query_tile_rows<T>, N = lanes<T>;
  for (int j = key; j < end; ++j) {
    Vector<T> weight[4];
    ATTN_UNROLL_FOR (int v = FIRST; v < LAST; ++v) weight[v] = hn::Load(d, p + j * R + v * N);
    const T* value = v_rows[j] + column;
    ATTN_UNROLL_FOR (int c = 0; c < COLUMNS; ++c) {
      const auto x = hn::Set(d, value[c]);
      ATTN_UNROLL_FOR (int v = FIRST; v < LAST; ++v) sum[c][v] = hn::MulAdd(x, weight[v], sum[c][v]);
    }
  }
}

/// COLUMNS value columns of all vectors over an edge of the mask. Computed one vector at a time, each broadcast would
/// be used once and each chain would have few keys.
template <typename T, int COLUMNS>
HWY_INLINE void edge_tile(const ActiveRanges& ranges, const T* HWY_RESTRICT p, const T* const* v_rows,
                          std::int64_t column, T* HWY_RESTRICT o, const T* HWY_RESTRICT alpha, bool fresh) {
  const Tag<T> d;
  constexpr int R = query_tile_rows<T>, N = lanes<T>;
  Vector<T> sum[COLUMNS][4];
  ATTN_UNROLL_FOR (int c = 0; c < COLUMNS; ++c)
    ATTN_UNROLL_FOR (int v = 0; v < 4; ++v) sum[c][v] = hn::Zero(d);
  edge_keys<T, COLUMNS, 0, 1>(p, v_rows, column, ranges.begin[0], ranges.begin[1], sum);
  edge_keys<T, COLUMNS, 0, 2>(p, v_rows, column, ranges.begin[1], ranges.begin[2], sum);
  edge_keys<T, COLUMNS, 0, 3>(p, v_rows, column, ranges.begin[2], ranges.begin[3], sum);
  edge_keys<T, COLUMNS, 0, 4>(p, v_rows, column, ranges.begin[3], ranges.end[0], sum);
  edge_keys<T, COLUMNS, 1, 4>(p, v_rows, column, ranges.end[0], ranges.end[1], sum);
  edge_keys<T, COLUMNS, 2, 4>(p, v_rows, column, ranges.end[1], ranges.end[2], sum);
  edge_keys<T, COLUMNS, 3, 4>(p, v_rows, column, ranges.end[2], ranges.end[3], sum);
  ATTN_UNROLL_FOR (int v = 0; v < 4; ++v) {
    const auto a = hn::Load(d, alpha + v * N);
    ATTN_UNROLL_FOR (int c = 0; c < COLUMNS; ++c) {
      T* place = o + c * R + v * N;
      hn::Store(fresh ? sum[c][v] : hn::MulAdd(hn::Load(d, place), a, sum[c][v]), d, place);
    }
  }
}

/// Computes a block over an edge of the mask, in whole register tiles; returns the first column that is left.
template <typename T>
HWY_NOINLINE std::int64_t output_edge(const ActiveRanges& ranges, const QueryTileScratch<T>& scratch,
                                      const T* const* v_rows, std::int64_t value_dim, bool fresh) {
  constexpr int R = query_tile_rows<T>;
  std::int64_t c = 0;
  for (; value_dim - c >= 6 && (value_dim - c) % 6 != 2; c += 6) {
    if (scratch.ahead) scratch.ahead->fetch();
    edge_tile<T, 6>(ranges, scratch.s, v_rows, c, scratch.o + c * R, scratch.alpha, fresh);
  }
  for (; value_dim - c >= 4; c += 4)
    edge_tile<T, 4>(ranges, scratch.s, v_rows, c, scratch.o + c * R, scratch.alpha, fresh);
  return c;
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
