// src/kernels/attention/tiles/prefill_pv-inl.h: computes PV of a query tile (prefill): elements of V as broadcasts,
// query rows in the lanes.
#if defined(ATTN_PREFILL_PV_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_PREFILL_PV_INL_H
#undef ATTN_PREFILL_PV_INL_H
#else
#define ATTN_PREFILL_PV_INL_H
#endif

#include "kernels/attention/query_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// Rows of bf16 values; each row of words holds pairs from two adjacent rows of V.
struct PairedRows {
  const std::uint32_t* base;
  std::int64_t stride;
  HWY_INLINE const std::uint32_t* operator[](std::int64_t pair) const { return base + pair * stride; }
};

/// Adds a tile's sums over keys to the output: o = fma(o, alpha, sum), or the sum alone if `fresh` (the first block).
template <class Mac, int COLUMNS, int VECTORS>
HWY_INLINE void accumulate_tile(const RegisterTile<Mac, COLUMNS, VECTORS>& tile, typename Mac::Sum* o,
                                const typename Mac::Sum* alpha, bool fresh) {
  using T = typename Mac::Sum;
  const Tag<T> d;
  constexpr int R = query_tile_rows<T>, N = lanes<T>;
  if (fresh) return tile.store(o, R);
#if HWY_COMPILER_GCC || HWY_COMPILER_CLANG
  asm("" : "+r"(o));  // otherwise GCC computes all addresses before the branch, and keeps them in vector registers
#endif
  ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) {
    const auto a = hn::Load(d, alpha + v * N);
    ATTN_UNROLL_FOR (int c = 0; c < COLUMNS; ++c) {
      T* const place = o + c * R + v * N;
      hn::Store(hn::MulAdd(hn::Load(d, place), a, tile.sum[c][v]), d, place);
    }
  }
}

/// The operands and the output of PV for a block and some vectors of query rows: weights p [words][query_tile_rows];
/// values[n] is the n-th row of words of V.
template <class Mac, class Values>
struct OutputOperands {
  using T = typename Mac::Sum;
  const typename Mac::Word* p;
  Values values;
  std::int64_t words;  // length of the chain: keys, or pairs of keys
  T* o;
  const T* alpha;
  bool fresh;
  TilePrefetch* ahead;
};

/// Computes COLUMNS value columns x VECTORS vectors of query rows, each a chain over the words.
template <int COLUMNS, int VECTORS, class Mac, class Values>
HWY_INLINE void output_tile(const OutputOperands<Mac, Values>& out, std::int64_t column) {
  constexpr int R = query_tile_rows<typename Mac::Sum>;
  const auto left = [values = out.values, column](int c, std::int64_t n) HWY_ATTR { return values[n][column + c]; };
  RegisterTile<Mac, COLUMNS, VECTORS> tile;
  add_words(tile, left, out.p, out.words, out.ahead);
  accumulate_tile(tile, out.o + column * R, out.alpha, out.fresh);
}

/// Computes the value columns [column, value_dim).
template <int VECTORS, class Mac, class Values>
HWY_NOINLINE void output_columns(const OutputOperands<Mac, Values>& out, std::int64_t column, std::int64_t value_dim) {
  constexpr int most = tile_keys(VECTORS, registers);
  for (; column + most <= value_dim; column += most) output_tile<most, VECTORS>(out, column);
  for (; column + 4 <= value_dim; column += 4) output_tile<4, VECTORS>(out, column);
  for (; column + 2 <= value_dim; column += 2) output_tile<2, VECTORS>(out, column);
  for (; column < value_dim; ++column) output_tile<1, VECTORS>(out, column);
}

/// Adds the products of keys [0, keys), whose weights begin at row `row`, to `o` for the vectors [first, last), from
/// value column `column` on.
template <typename T>
HWY_INLINE void output_block(const QueryTileScratch<T>& scratch, const T* const* v_rows, int keys, std::int64_t column,
                             std::int64_t value_dim, int row, int first, int last, bool fresh) {
  constexpr int R = query_tile_rows<T>, N = lanes<T>;
  for_each_tile(first, last, [&]<int V>(int v) HWY_ATTR {
    output_columns<V>(
        OutputOperands<MultiplyAdd<T>, const T* const*>{scratch.s + row * R + v * N, v_rows, keys, scratch.o + v * N,
                                                        scratch.alpha + v * N, fresh, scratch.ahead},
        column, value_dim);
  });
}

/// Whether a target has register tiles for blocks on the edge of a causal mask or a window: query tiles need four
/// vectors, and registers for all of them.
template <typename T>
inline constexpr bool edge_tiles = query_tile_vectors<T> == 4 && tile_vectors == 4;

/// Computes COLUMNS value columns of all vectors for a block on the edge of the mask. If each vector were computed
/// alone, each broadcast would be used once and each chain would have few keys.
template <typename T, int COLUMNS>
HWY_INLINE void edge_tile(const ActiveRanges& ranges, const T* p, const T* const* v_rows, std::int64_t column, T* o,
                          const T* alpha, bool fresh) {
  constexpr int R = query_tile_rows<T>;
  const auto left = [=](int c, std::int64_t key) HWY_ATTR { return v_rows[key][column + c]; };
  RegisterTile<MultiplyAdd<T>, COLUMNS, 4> tile;
  tile.template add<0, 1>(left, p, R, ranges.begin[0], ranges.begin[1]);
  tile.template add<0, 2>(left, p, R, ranges.begin[1], ranges.begin[2]);
  tile.template add<0, 3>(left, p, R, ranges.begin[2], ranges.begin[3]);
  tile.template add<0, 4>(left, p, R, ranges.begin[3], ranges.end[0]);
  tile.template add<1, 4>(left, p, R, ranges.end[0], ranges.end[1]);
  tile.template add<2, 4>(left, p, R, ranges.end[1], ranges.end[2]);
  tile.template add<3, 4>(left, p, R, ranges.end[2], ranges.end[3]);
  accumulate_tile(tile, o, alpha, fresh);
}

/// Computes PV of a block on the edge of the mask, in whole register tiles; returns the first column that is left.
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
