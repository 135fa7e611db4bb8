// src/kernels/attention/tiles/bf16_backward_products-inl.h: computes the five products of the backward pass in bf16, by
// vdpbf16ps on pairs.
//
//   S^T = K Q^T      dP^T = V dO^T      lanes are rows: pairs of columns of K and V as broadcasts     pair_columns
//   dV += P^T dO     dK += dS^T Q       lanes are columns: pairs of rows as broadcasts                 bf16_add_columns
//   dQ += dS K                          lanes are columns: pairs of keys as broadcasts                 bf16_add_columns
//  No sum crosses a lane; each is a chain over D, over the block's keys, over the block's rows. The chains start at 0
// and are added to the sums in memory at the end: if they started from memory, latency would cost 5 to 8 percentage
// points of peak.
#if defined(ATTN_BF16_BACKWARD_PRODUCTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_BF16_BACKWARD_PRODUCTS_INL_H
#undef ATTN_BF16_BACKWARD_PRODUCTS_INL_H
#else
#define ATTN_BF16_BACKWARD_PRODUCTS_INL_H
#endif

#include "kernels/attention/mask/masked_values-inl.h"
#include "kernels/attention/tiles/bf16_dot_instruction-inl.h"
#include "kernels/attention/softmax/bf16_softmax-inl.h"
#include "kernels/attention/tiles/backward_products-inl.h"

#if HWY_TARGET == HWY_AVX3
ATTN_BEFORE_BF16_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {

/// Rows of results: sums times `scale`, rounded to bf16; a zero is +0, a NaN is canonical.
struct RoundedRows {
  std::uint16_t* base = nullptr;  // null: results are not stored
  std::int64_t stride = 0, columns = 0;
  float scale = 1;

  RoundedRows from_column(std::int64_t c) const { return {base + c, stride, columns - c, scale}; }
  /// Stores 32 columns, or those that exist.
  HWY_INLINE void store(std::int64_t row, __m512 low, __m512 high) const {
    const __m512 factor = _mm512_set1_ps(scale);
    __m512i y = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(_mm512_mul_ps(high, factor), _mm512_mul_ps(low, factor)));
    const __m512i magnitude = _mm512_and_si512(y, _mm512_set1_epi16(0x7FFF));
    y = _mm512_maskz_mov_epi16(_mm512_test_epi16_mask(magnitude, magnitude), y);
    y = _mm512_mask_mov_epi16(y, _mm512_cmpgt_epi16_mask(magnitude, _mm512_set1_epi16(0x7F80)),
                              _mm512_set1_epi16(0x7FC0));
    std::uint16_t* const to = base + row * stride;
    if (columns >= 32) _mm512_storeu_si512(to, y);
    else _mm512_mask_storeu_epi16(to, static_cast<__mmask32>((std::uint64_t{1} << columns) - 1), y);
  }
};

/// Where sums of pairs are added: rows `stride` apart, whole vectors. `begins`: the sums start at 0 and memory is not
/// read.
struct PairTotals {
  float* base;
  std::int64_t stride;
  bool begins = false;
  RoundedRows ends = {};  // set with the last sums: their rounded results are stored here, and nothing at `base`

  PairTotals from_column(std::int64_t c) const {
    return {base + c, stride, begins, ends.base != nullptr ? ends.from_column(c) : RoundedRows{}};
  }
  MemoryPieces pieces(std::int64_t rows) const { return {base, 4 * stride, 4 * stride, rows}; }
};

/// Adds a tile's sums to the rows from `first` on, of which `rows` exist.
template <int ROWS, int VECTORS>
HWY_INLINE void add_tile(RegisterTile<DotPairs, ROWS, VECTORS>& tile, const PairTotals& total, std::int64_t first,
                         std::int64_t rows) {
  auto& sum = tile.sum;
  float* const place = total.base + first * total.stride;
  if (!total.begins)  // a masked load would be slow where pages have never been written
    ATTN_UNROLL_FOR (int r = 0; r < ROWS; ++r)
      ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v)
        sum[r][v].raw = _mm512_add_ps(_mm512_load_ps(place + r * total.stride + v * 16), sum[r][v].raw);
  if (total.ends.base == nullptr) return tile.store(place, total.stride);
  ATTN_UNROLL_FOR (int r = 0; r < ROWS; ++r)
    if (first + r < rows)
      total.ends.store(first + r, sum[r][0].raw, VECTORS == 2 ? sum[r][VECTORS - 1].raw : _mm512_setzero_ps());
}

/// Computes total[row][column] += the chain of left[row * ROW + pair * STEP] times x[pair][column] over the pairs of
/// items that range_of(first row, rows of the tile) returns.
template <int VECTORS, int ROW, int STEP, typename F>
HWY_NOINLINE void bf16_add_columns(const std::uint32_t* left, int rows, const std::uint32_t* x, std::int64_t stride,
                                   const F& range_of, const PairTotals& total, TilePrefetch& ahead) {
  const auto tile = [&]<int ROWS>(std::int64_t first) ATTN_BF16_ATTR {
    const RowRange range = range_of(static_cast<int>(first), ROWS);
    if (range.begin >= range.end && !total.begins && total.ends.base == nullptr) return;
    const StepPrefetch prefetch = ahead.spread((range.end + 1) / 2 - range.begin / 2, x);
    RegisterTile<DotPairs, ROWS, VECTORS> sums;
    sums.add([broadcast = left + first * ROW](int r, std::int64_t n) HWY_ATTR { return broadcast[r * ROW + n * STEP]; },
             x, stride, range.begin / 2, (range.end + 1) / 2, prefetch);
    add_tile(sums, total, first, rows);
  };
  constexpr int most = gradient_tile(2);
  if constexpr (ROW == 1)  // query rows: memory has whole tiles of them
    for (int first = 0; first < rows; first += most) tile.template operator()<most>(first);
  else in_tiles<VECTORS, most>(rows, tile);
}

/// Does so for all columns; rows of x are as long as those of the totals.
template <int ROW, int STEP, typename F>
HWY_INLINE void bf16_add(const std::uint32_t* left, int rows, const std::uint32_t* x, std::int64_t columns,
                         const F& range_of, const PairTotals& total, TilePrefetch& ahead) {
  in_pairs(0, static_cast<int>((columns + 15) / 16), [&]<int V>(int v) ATTN_BF16_ATTR {
    bf16_add_columns<V, ROW, STEP>(left, rows, x + v * 16, total.stride, range_of, total.from_column(v * 16), ahead);
  });
}

/// Returns the 32 columns from `c` on of a row with `columns` columns; missing columns are 0.
HWY_INLINE __m512i bf16_columns(const std::uint16_t* row, std::int64_t c, std::int64_t columns) {
  return _mm512_maskz_loadu_epi16(
      columns - c >= 32 ? ~__mmask32{0} : static_cast<__mmask32>((std::uint64_t{1} << (columns - c)) - 1), row + c);
}

/// Interleaves rows of bf16, each even row with the next one, into words (low, high); columns_of(row, c) returns 32
/// columns of a row. A number that is not finite becomes 0. Returns true if there was one.
template <typename F>
HWY_INLINE bool bf16_pair_rows(int rows, std::int64_t wide, const F& columns_of, std::uint32_t* to) {
  const auto pair_rows = [&]<bool FINITE>() __attribute__((always_inline)) ATTN_BF16_ATTR {
    __m512i largest = _mm512_setzero_si512();
    std::uint32_t* words = to;
    for (int r = 0; r < rows; r += 2)
      for (std::int64_t c = 0; c < wide; c += 32, words += 32) {
        __m512i row[2] = {columns_of(r, c), columns_of(r + 1, c)};
        ATTN_UNROLL_FOR (__m512i& x : row) {
          if (FINITE) largest = _mm512_max_epu16(largest, _mm512_add_epi16(x, x));
          else x = bf16_finite_or_zero(x);
        }
        store_interleaved(row[0], row[1], words);
      }
    return bf16_not_finite(largest) != 0;
  };
  if (!pair_rows.template operator()<true>()) return false;
  pair_rows.template operator()<false>();
  return true;
}

/// Multiplies the sums of the rows by their scale and stores them as results.
HWY_INLINE void bf16_round_rows(const PairTotals& from, const RoundedRows& to, std::int64_t rows) {
  for (std::int64_t n = 0; n < rows; ++n)
    for (std::int64_t c = 0; c < to.columns; c += 32) {
      const float* const sums = from.base + n * from.stride + c;
      to.from_column(c).store(n, _mm512_load_ps(sums), _mm512_load_ps(sums + 16));
    }
}

}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
#endif
