// src/kernels/attention/tiles/decode_qk-inl.h: QK^T of decode rows: keys in the lanes, rows of K transposed in
// registers.
//
//   many rows: lanes are rows, each element of K is broadcast to them      decode rows: most of those lanes would be
//                                                                          empty; lanes are keys, each element of Q is
//                                                                          broadcast to them
//
// A score is the same chain over the columns either way, so no bit changes.
#if defined(ATTN_DECODE_QK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_DECODE_QK_INL_H
#undef ATTN_DECODE_QK_INL_H
#else
#define ATTN_DECODE_QK_INL_H
#endif

#include "kernels/attention/tiles/decode_pv-inl.h"
#include "kernels/simd/transpose-inl.h"

#include <algorithm>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// Keys of a register tile: two vectors share a broadcast element of Q, and are chains enough to hide an FMA's latency.
template <typename T>
inline constexpr int decode_tile_keys = 2 * lanes<T>;

/// Returns whether the rows are evenly spaced, by whole elements.
template <typename T>
HWY_INLINE bool evenly_spaced(const T* const* rows, int count) {
  const auto at = [rows](int i) { return reinterpret_cast<const char*>(rows[i]); };
  const std::ptrdiff_t stride = at(1) - at(0);
  bool even = stride % static_cast<std::ptrdiff_t>(sizeof(T)) == 0;
  for (int i = 2; i < count; ++i) even &= at(i) - at(i - 1) == stride;
  return even;
}

/// Scores of decode rows, [row][stride] with adjacent keys, and the rows' maxima.
template <typename T>
struct DecodeQk {
  T* s;
  std::int64_t stride;
  T* maximum;
};

/// Computes dot products of `dim` columns with queries q [D][max_decode_rows].
template <typename T>
struct DecodeQkTile {
  static constexpr bool wide = registers == 32;  // whether registers hold four rows of more than one vector
  std::int64_t dim;
  const T* q;
  StreamPrefetcher* ahead;  // of the keys

  /// ROWS rows from `row` x VECTORS * N keys, of which keys[v] is the first of N that stand `stride` apart, to scores
  /// [row][to_stride].
  template <int ROWS, int VECTORS>
  HWY_INLINE void operator()(const T* const* keys, std::int64_t stride, int row, T* scores,
                             std::int64_t to_stride) const {
    constexpr bool prefetches = prefetches_ahead<T> && (VECTORS > 1 || registers == 16);
    constexpr int lines = prefetches ? (VECTORS * lanes<T> + 3) / 4 : 0;
    by_distance<lines>(
        *ahead, [&]<int TIMES>() HWY_ATTR { tile<ROWS, VECTORS, lines, TIMES>(keys, stride, row, scores, to_stride); });
  }

  template <int ROWS, int VECTORS, int LINES, int TIMES>
  HWY_NOINLINE void tile(const T* const* keys, std::int64_t stride, int row, T* scores, std::int64_t to_stride) const {
    const Tag<T> d;
    constexpr int N = lanes<T>, side = transposed_columns<T>;
    Vector<T> sum[ROWS][VECTORS];
    ATTN_UNROLL_FOR (int r = 0; r < ROWS; ++r)
      ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) sum[r][v] = hn::Zero(d);
    const T* of_rows = q + row;
    RowsInStep<Tag<T>> first(keys[0], stride), second(keys[VECTORS - 1], stride);
    std::int64_t c = 0;
    for (; c + side <= dim; c += side, of_rows += side * max_decode_rows) {
      const auto next = take<LINES, TIMES>(*ahead, keys[0]);
      Vector<T> column[VECTORS][side];
      first.next(d, column[0]);
      if constexpr (VECTORS == 2) second.next(d, column[1]);
      ATTN_UNROLL_FOR (int i = 0; i < side; ++i)
        ATTN_UNROLL_FOR (int r = 0; r < ROWS; ++r) {
          const auto x = hn::Set(d, of_rows[i * max_decode_rows + r]);
          ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) sum[r][v] = hn::MulAdd(column[v][i], x, sum[r][v]);
          prefetch_share<LINES>(next, i * ROWS + r, side * ROWS);
        }
    }
    for (; c < dim; ++c, of_rows += max_decode_rows)
      ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) {
        alignas(64) T column[N];
        for (int i = 0; i < N; ++i) column[i] = keys[v][i * stride + c];
        ATTN_UNROLL_FOR (int r = 0; r < ROWS; ++r)
          sum[r][v] = hn::MulAdd(hn::Load(d, column), hn::Set(d, of_rows[r]), sum[r][v]);
      }
    ATTN_UNROLL_FOR (int r = 0; r < ROWS; ++r)
      ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) hn::StoreU(sum[r][v], d, scores + (row + r) * to_stride + v * N);
  }
};

/// Scores of `rows` rows and of `vectors` (1, or `most`) times N keys from `key` on, keys[v] the first of N that stand
/// `stride` apart.
template <int most = 2, typename T, class Tile>
HWY_NOINLINE void decode_qk(const DecodeQk<T>& to, const T* const* keys, std::int64_t stride, int key, int vectors,
                            int rows, const Tile& tile) {
  constexpr int N = lanes<T>;
  T* const scores = to.s + key;
  int row = 0;
  for (; row + 4 <= rows; row += 4) {
    if (vectors == most && Tile::wide) {
      tile.template operator()<4, most>(keys, stride, row, scores, to.stride);
    } else {
      for (int v = 0; v < vectors; ++v)
        tile.template operator()<4, 1>(keys + v, stride, row, scores + v * N, to.stride);
    }
  }
  for (; row < rows; ++row) {
    if (vectors == most) tile.template operator()<1, most>(keys, stride, row, scores, to.stride);
    else tile.template operator()<1, 1>(keys, stride, row, scores, to.stride);
  }
}

/// Returns whether row r sees keys 0 ... count - 1, one bit per key; null: it sees all of them.
HWY_NOINLINE inline Word seen_keys(const Word* visible, int r, int count) {
  const Word all = (Word{1} << count) - 1;
  if (visible == nullptr) return all;
  Word seen = 0;
  for (int n = count; n-- > 0;) seen = seen << 1 | (visible[n] >> r & 1);
  return seen;
}

/// Of the keys [begin, end): -inf where `visible` (the block's words; null: all) has no bit for the row, and the rows'
/// maxima.
template <typename T>
HWY_NOINLINE void decode_maxima(const DecodeQk<T>& to, int rows, int begin, int end, const Word* visible) {
  const Tag<T> d;
  constexpr int N = lanes<T>;
  for (int r = 0; r < rows; ++r) {
    T* const s = to.s + r * to.stride;
    auto largest = minus_infinity<T>();
    const auto mask = [&](int i, int count) HWY_ATTR {
      const auto x = hn::IfThenElse(lanes_of<T>(seen_keys(visible ? visible + i : nullptr, r, count), 0),
                                    hn::LoadU(d, s + i), minus_infinity<T>());
      hn::BlendedStore(x, hn::FirstN(d, static_cast<std::size_t>(count)), d, s + i);
      return x;
    };
    int i = begin;
    for (; i + N <= end; i += N) largest = hn::Max(largest, visible ? mask(i, N) : hn::LoadU(d, s + i));
    if (i < end) largest = hn::Max(largest, mask(i, end - i));
    to.maximum[r] = std::max(to.maximum[r], hn::GetLane(hn::MaxOfLanes(d, largest)));
  }
}

/// Computes decode_qk for keys k[0], k[1] ...
template <typename T, class Tile>
HWY_INLINE void decode_qk(const DecodeQk<T>& to, const T* const* k, int key, int vectors, int rows, const Tile& tile) {
  const T* const keys[2] = {k[0], k[(vectors - 1) * lanes<T>]};
  const std::ptrdiff_t bytes = reinterpret_cast<const char*>(k[1]) - reinterpret_cast<const char*>(k[0]);
  decode_qk(to, keys, bytes / static_cast<std::ptrdiff_t>(sizeof(T)), key, vectors, rows, tile);
}

/// Calls transposed(first key, vectors) for groups of N evenly spaced keys in [key, end), the last of which may overlap
/// the one before, and plain(first key, end) for the rest: fewer than N keys, or keys across pages.
template <typename T, class Transposed, class Plain>
HWY_INLINE void for_each_decode_keys(const T* const* k, int key, int end, Transposed&& transposed, Plain&& plain) {
  constexpr int N = lanes<T>;
  if (end - key < N) return plain(key, end);
  while (key < end) {
    if (end - key < N) key = end - N;
    if (!evenly_spaced(k + key, N)) {
      plain(key, key + N);
      key += N;
      continue;
    }
    const bool two =
        end - key >= 2 * N && evenly_spaced(k + key + N, N) && k[key + 1] - k[key] == k[key + N + 1] - k[key + N];
    transposed(key, two ? 2 : 1);
    key += two ? 2 * N : N;
  }
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
