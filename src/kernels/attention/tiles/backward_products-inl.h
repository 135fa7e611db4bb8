// src/kernels/attention/tiles/backward_products-inl.h: computes the five products of the backward pass for 64 query
// rows and 64 keys, in f32 and f64.
//
//   S^T = K Q^T      dP^T = V dO^T      lanes are rows: elements of K and V as broadcasts        pair_columns
//   dQ^T += K^T dS^T                    lanes are rows: elements of K as broadcasts              query_columns
//   dV += P^T dO     dK += dS^T Q       lanes are columns: weights and dS as broadcasts          add_to_keys
//
// No sum crosses a lane; each is a chain over D, over the block's keys, over the block's rows.
#if defined(ATTN_BACKWARD_PRODUCTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_BACKWARD_PRODUCTS_INL_H
#undef ATTN_BACKWARD_PRODUCTS_INL_H
#else
#define ATTN_BACKWARD_PRODUCTS_INL_H
#endif

#include "kernels/attention/next_rows.h"
#include "kernels/attention/query_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// Returns the rows (broadcasts) of a register tile of `vectors` vectors. 6 x 4 gains 3 to 8 % over 8 x 2 at D = 64 on
/// an AMD EPYC, 12 x 2 loses up to 2 %.
inline constexpr int gradient_tile(int vectors) {
  return registers == 16 ? (vectors == 2 ? 6 : 12) : vectors == 4 ? 6 : vectors == 1 ? 16 : 8;
}

/// Splits the vectors [first, last) into groups of two, and one that is left: visit<VECTORS>(vector).
template <typename F>
HWY_INLINE void in_pairs(int first, int last, F&& visit) {
  int v = first;
  for (; v + 2 <= last; v += 2) visit.template operator()<2>(v);
  if (v < last) visit.template operator()<1>(v);
}
/// Splits [0, count) into tiles of `most`, then of 4, then of 1: visit<ROWS>(first). If two would be left after tiles
/// of six, no tile of six is used.
template <int VECTORS, int most = gradient_tile(VECTORS), typename F>
HWY_INLINE void in_tiles(std::int64_t count, F&& visit) {
  std::int64_t r = 0;
  for (; r + most <= count && (most != 6 || (count - r) % 6 != 2); r += most) visit.template operator()<most>(r);
  for (; r + 4 <= count; r += 4) visit.template operator()<4>(r);
  for (; r < count; ++r) visit.template operator()<1>(r);
}

/// Rows of a matrix in memory.
template <typename T>
struct Matrix {
  const T* base;
  std::int64_t stride;
  const T* row(std::int64_t i) const { return base + i * stride; }
};

/// Returns what a sum is added to: the value in memory or, if the sum begins, 0 without reading memory.
template <typename T>
struct Before {
  hn::Mask<Tag<T>> there;
  explicit Before(bool begins) : there(hn::FirstN(Tag<T>(), begins ? 0 : lanes<T>)) {}
  HWY_INLINE Vector<T> operator()(const T* place) const { return hn::MaskedLoad(there, Tag<T>(), place); }
};

/// Computes to[key][lane], the products of `keys` rows of K (or V), of `words` words each, with VECTORS vectors of
/// transposed query rows x[word][R]; with DotPairs times `factor`.
template <class Mac, int VECTORS>
HWY_NOINLINE void pair_columns(const Matrix<typename Mac::Item>& rows, int keys, std::int64_t words,
                               const typename Mac::Word* x, typename Mac::Sum factor, typename Mac::Sum* to,
                               TilePrefetch& ahead) {
  constexpr int most = gradient_tile(VECTORS == 1 ? 2 : VECTORS);  // more than 8 rows have more pointers than registers
  in_tiles<VECTORS, most>(keys, [&]<int KEYS>(std::int64_t first) HWY_ATTR {
    const StepPrefetch prefetch = ahead.spread(words, x);
    const typename Mac::Item* row[KEYS];
    ATTN_UNROLL_FOR (int r = 0; r < KEYS; ++r) row[r] = rows.row(first + r);
    const auto left = [&](int r, std::int64_t n)
                          HWY_ATTR { return word_at<typename Mac::Word>(row[r] + Mac::depth * n); };
    RegisterTile<Mac, KEYS, VECTORS> tile;
    tile.add(left, x, query_block, 0, words, prefetch);
    if (Mac::depth == 2 && factor != 1)
      ATTN_UNROLL_FOR (int r = 0; r < KEYS; ++r)
        ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v)
          tile.sum[r][v] = hn::Mul(tile.sum[r][v], hn::Set(Tag<typename Mac::Sum>(), factor));
    tile.store(to + first * query_block, query_block);
  });
}

/// Computes total[column][lane] += the chain over keys [begin, end) of K[key][column] * x[key][lane]. `begins`: total
/// begins at 0, and memory is not read.
template <typename T, int VECTORS>
HWY_NOINLINE void query_columns(const Matrix<T>& k, int begin, int end, std::int64_t dim, const T* x, T* total,
                                bool begins, TilePrefetch& ahead) {
  const Tag<T> d;
  const Before<T> before(begins);
  in_tiles<VECTORS>(dim, [&]<int COLUMNS>(std::int64_t column) HWY_ATTR {
    const StepPrefetch prefetch = ahead.spread(end - begin, x);
    const auto left = [base = k.base + column, stride = k.stride](int r, std::int64_t n)
                          HWY_ATTR { return base[n * stride + r]; };
    RegisterTile<MultiplyAdd<T>, COLUMNS, VECTORS> tile;
    tile.add(left, x, query_block, begin, end, prefetch);
    ATTN_UNROLL_FOR (int r = 0; r < COLUMNS; ++r)
      ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) {
        T* place = total + (column + r) * query_block + v * lanes<T>;
        hn::Store(hn::Add(before(place), tile.sum[r][v]), d, place);
      }
  });
}

/// Where sums over rows are added: rows of dK (or dV) with `columns` columns left. `begins`: the sums start at 0 and
/// memory is not read.
template <typename T>
struct KeyTotals {
  T* base;
  std::int64_t stride, columns;
  bool begins;

  KeyTotals from(std::int64_t row, std::int64_t column) const {
    return {base + row * stride + column, stride, columns - column, begins};
  }
};

/// Computes total[key][column] += the chain over rows [begin, end) of weights[key][row] * x[row][column], for ROWS keys
/// from the one at `weights` on.
template <typename T, int ROWS, int VECTORS>
HWY_INLINE void key_tile(const T* weights, const Matrix<T>& x, int begin, int end, const KeyTotals<T>& total,
                         StepPrefetch prefetch) {
  const Tag<T> d;
  constexpr int N = lanes<T>;
  RegisterTile<MultiplyAdd<T>, ROWS, VECTORS> tile;
  tile.add([=](int r, std::int64_t n) HWY_ATTR { return weights[r * query_block + n]; }, x.base, x.stride, begin, end,
           prefetch);
  if (total.columns >= VECTORS * N) {
    const Before<T> before(total.begins);
    ATTN_UNROLL_FOR (int r = 0; r < ROWS; ++r)
      ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) {
        T* place = total.base + r * total.stride + v * N;
        hn::StoreU(hn::Add(before(place), tile.sum[r][v]), d, place);
      }
    return;
  }
  alignas(64) T sums[ROWS][VECTORS * N];
  tile.store(sums[0], VECTORS * N);
  for (int r = 0; r < ROWS; ++r)
    for (std::int64_t c = 0; c < total.columns; ++c) {
      T& place = total.base[r * total.stride + c];
      place = (total.begins ? T(0) : place) + sums[r][c];
    }
}

template <typename T, int VECTORS, typename F>
HWY_NOINLINE void key_columns(const T* weights, int keys, const Matrix<T>& x, const F& range_of,
                              const KeyTotals<T>& total, TilePrefetch& ahead) {
  in_tiles<VECTORS>(keys, [&]<int ROWS>(std::int64_t first) HWY_ATTR {
    const RowRange range = range_of(static_cast<int>(first), ROWS);
    if (range.begin < range.end || total.begins)
      key_tile<T, ROWS, VECTORS>(weights + first * query_block, x, range.begin, range.end, total.from(first, 0),
                                 ahead.spread(range.end - range.begin, x.base));
  });
}

/// Adds to all columns of the totals. x: query_block rows, padded to whole vectors.
template <typename T, typename F>
HWY_INLINE void add_to_keys(const T* weights, int keys, const Matrix<T>& x, const F& range_of,
                            const KeyTotals<T>& total, TilePrefetch& ahead) {
  constexpr int N = lanes<T>;
  for_each_tile(0, static_cast<int>((total.columns + N - 1) / N), [&]<int V>(int v) HWY_ATTR {
    key_columns<T, V>(weights, keys, Matrix<T>{x.base + v * N, x.stride}, range_of, total.from(0, v * N), ahead);
  });
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
