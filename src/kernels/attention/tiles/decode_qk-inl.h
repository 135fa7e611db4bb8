// src/kernels/attention/tiles/decode_qk-inl.h: computes QK^T of decode rows: keys are in the lanes, and rows of K are
// transposed in registers.
//
//   many rows: lanes are rows, each element of K is broadcast to them      decode rows: most of those lanes would be
//                                                                          empty; lanes are keys, each element of Q is
//                                                                          broadcast to them
//
// A score is the same chain over the columns in both, so the choice of lanes changes no bit. There is one tile for all
// formats: a loader of keys (RowKeys and the like) says how they are read, converted and prefetched.
#if defined(ATTN_DECODE_QK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_DECODE_QK_INL_H
#undef ATTN_DECODE_QK_INL_H
#else
#define ATTN_DECODE_QK_INL_H
#endif

#include "kernels/attention/mask/active_vectors.h"
#include "kernels/attention/tiles/decode_pv-inl.h"
#include "kernels/simd/transpose-inl.h"

#include <algorithm>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// The queries of decode rows, [columns][max_decode_rows]; a column is a word of the Mac.
template <class Mac>
struct DecodeQueries {
  const typename Mac::Word* words;
  std::int64_t columns;
  int rows;
};

/// Where scores go: [row][stride], keys adjacent.
template <typename T>
struct DecodeScoreRows {
  T* s;
  std::int64_t stride;
  DecodeScoreRows from(int key) const { return {s + key, stride}; }
};

/// The loader of keys in evenly spaced rows: a step transposes 16 bytes of N rows. Two vectors of keys share a
/// broadcast element of Q, and give enough chains to hide an FMA's latency.
template <class Format>
struct RowKeys {
  using Compute = typename Format::Compute;
  using Word = typename Format::Word;
  static constexpr int N = lanes<Compute>, most = 2;  // vectors of a tile
  static constexpr bool four_rows = registers == 32;  // whether there are registers for four rows of `most` vectors
  static constexpr int words = transposed_columns<Word>, step = words * Format::word_items;
  static constexpr bool whole_steps = false;
  template <int VECTORS>
  static constexpr int lines =
      prefetches_ahead<Compute> && (VECTORS > 1 || registers == 16) ? (VECTORS * N + 3) / 4 : 0;
  const Word* first[most];  // the first row of each N keys
  std::int64_t stride;      // words from row to row
  StreamPrefetcher* ahead;

  template <int VECTORS, class Tile>
  HWY_INLINE void prefetching(const Tile& tile) const {
    by_distance<lines<VECTORS>>(*ahead, tile);
  }

  /// Reads `step` columns of VECTORS * N keys at a time, from vector `vector` on.
  template <int VECTORS, int TIMES>
  class Reader {
   public:
    HWY_INLINE Reader(const RowKeys& keys, int vector, int)
        : first_(keys.first + vector), ahead_(*keys.ahead), low_(first_[0], keys.stride),
          high_(first_[VECTORS - 1], keys.stride) {}
    HWY_INLINE void next() {
      prefetched_ = take<lines<VECTORS>, TIMES>(ahead_, first_[0]);
      low_.next(Tag<Word>(), words_[0]);
      if constexpr (VECTORS == 2) high_.next(Tag<Word>(), words_[1]);
    }
    HWY_INLINE Vector<Compute> column(int v, int i) const {
      return Format::item(words_[v][i / Format::word_items], i % Format::word_items);
    }
    /// Prefetches the share of point `point`; there are `points` points between two calls of next().
    HWY_INLINE void prefetch(int point, int points) const {
      prefetch_share<lines<VECTORS>>(prefetched_, point, points);
    }
    /// Reads a single column, beyond the last whole step.
    HWY_INLINE Vector<Compute> single(int v, std::int64_t column) const {
      using Item = typename Format::Item;
      alignas(64) Item items[N];
      for (int i = 0; i < N; ++i)
        std::memcpy(items + i, reinterpret_cast<const Item*>(first_[v] + i * low_.stride) + column, sizeof(Item));
      return Format::load(items);
    }

   private:
    const Word* const* first_;
    StreamPrefetcher& ahead_;
    RowsInStep<Tag<Word>> low_, high_;
    Vector<Word> words_[VECTORS][words];
    PrefetchAddresses<TIMES> prefetched_;
  };
};

/// Whether a loader of keys has registers for tiles of eight rows; with five to seven rows, eight are computed, and the
/// results of rows that do not exist are not used. K is then transposed once, which takes as long as the products of
/// four rows.
template <class Keys>
inline constexpr bool eight_rows = false;
template <class Format>
inline constexpr bool eight_rows<RowKeys<Format>> = registers == 32 && sizeof(typename Format::Compute) == 4;

/// Computes scores of decode rows: ROWS rows x VECTORS vectors of keys, each score a chain over the columns.
template <class Mac, class Keys>
struct DecodeQkTile {
  using T = typename Mac::Sum;
  DecodeQueries<Mac> q;
  Keys keys;

  /// Computes all rows for `vectors` (1 or Keys::most) vectors of keys.
  HWY_NOINLINE void operator()(int vectors, const DecodeScoreRows<T>& to) const {
    constexpr int most = Keys::most;
    int row = 0;
    if constexpr (eight_rows<Keys>)
      if (q.rows > 4) return vectors == most ? rows_of<8, most>(0, 0, to) : rows_of<8, 1>(0, 0, to);
    for (; row + 4 <= q.rows; row += 4)
      if (vectors == most && Keys::four_rows) rows_of<4, most>(0, row, to);
      else
        for (int v = 0; v < vectors; ++v) rows_of<4, 1>(v, row, to.from(v * lanes<T>));
    for (; row < q.rows; ++row)
      if (vectors == most) rows_of<1, most>(0, row, to);
      else rows_of<1, 1>(0, row, to);
  }

 private:
  template <int ROWS, int VECTORS>
  HWY_INLINE void rows_of(int vector, int row, const DecodeScoreRows<T>& to) const {
    keys.template prefetching<VECTORS>(
        [&]<int TIMES>() HWY_ATTR { this->template tile<ROWS, VECTORS, TIMES>(vector, row, to.s, to.stride); });
  }

  template <int ROWS, int VECTORS, int TIMES>
  HWY_NOINLINE void tile(int vector, int row, T* scores, std::int64_t to_stride) const {
    const Tag<T> d;
    constexpr int step = Keys::step;
    Vector<T> sum[ROWS][VECTORS];
    ATTN_UNROLL_FOR (int r = 0; r < ROWS; ++r)
      ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) sum[r][v] = hn::Zero(d);
    typename Keys::template Reader<VECTORS, TIMES> k(keys, vector, row);
    const auto* x = q.words + row;
    const std::int64_t columns = q.columns;
    std::int64_t c = 0;
    for (; c + step <= columns; c += step, x += step * max_decode_rows) {
      k.next();
      ATTN_UNROLL_FOR (int i = 0; i < step; ++i) {
        Vector<T> column[VECTORS];
        ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) column[v] = k.column(v, i);
        ATTN_UNROLL_FOR (int r = 0; r < ROWS; ++r) {
          const auto query = Mac::broadcast(x[i * max_decode_rows + r]);
          ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) sum[r][v] = Mac::step(column[v], query, sum[r][v]);
          k.prefetch(i * ROWS + r, step * ROWS);
        }
      }
    }
    if constexpr (!Keys::whole_steps)
      for (; c < columns; ++c, x += max_decode_rows)
        ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) {
          const auto column = k.single(v, c);
          ATTN_UNROLL_FOR (int r = 0; r < ROWS; ++r) sum[r][v] = Mac::step(column, Mac::broadcast(x[r]), sum[r][v]);
        }
    ATTN_UNROLL_FOR (int r = 0; r < ROWS; ++r)
      ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v)
        hn::StoreU(sum[r][v], d, scores + (row + r) * to_stride + v * lanes<T>);
  }
};

/// Returns whether the rows are evenly spaced, by a multiple of the word size.
template <typename Word>
HWY_INLINE bool evenly_spaced(const Word* const* rows, int count) {
  const auto at = [rows](int i) { return reinterpret_cast<const char*>(rows[i]); };
  const std::ptrdiff_t stride = at(1) - at(0);
  bool even = stride % static_cast<std::ptrdiff_t>(sizeof(Word)) == 0;
  for (int i = 2; i < count; ++i) even &= at(i) - at(i - 1) == stride;
  return even;
}

/// Computes the scores of the active ranges of a block whose rows are `k`. N rows that are not evenly spaced (because
/// keys are in several pages), and fewer than N rows, are first copied to `copy`, which has N rows. The last N keys of
/// a range may overlap those before.
template <class Mac, class Format>
HWY_NOINLINE void decode_row_scores(const DecodeQueries<Mac>& q, const typename Format::Word* const* k,
                                    const ActiveRanges& ranges, typename Format::Word* copy, StreamPrefetcher& ahead,
                                    const DecodeScoreRows<typename Mac::Sum>& to) {
  using T = typename Mac::Sum;
  using Word = typename Format::Word;
  constexpr int N = lanes<T>;
  const std::int64_t row_words = (q.columns + Format::word_items - 1) / Format::word_items;
  int read = ranges.begin[0];
  for (int g = 0; g < ranges.count; ++g) {
    if (ranges.empty(g)) continue;
    const int begin = ranges.key[g], end = ranges.key[g + 1];
    for (int key = begin, count; key < end; key += count) {
      if (end - key < N && end - begin >= N) key = end - N;
      const int left = end - key;
      const Word* const* const rows = k + key;
      const bool even = left >= N && evenly_spaced(rows, N);
      const bool two =
          even && left >= 2 * N && evenly_spaced(rows + N, N) && rows[1] - rows[0] == rows[N + 1] - rows[N];
      count = std::min(two ? 2 * N : N, left);
      ahead.use(key + count - read);
      read = key + count;
      if (even) {
        const std::ptrdiff_t bytes = reinterpret_cast<const char*>(rows[1]) - reinterpret_cast<const char*>(rows[0]);
        DecodeQkTile<Mac, RowKeys<Format>>{
            q, {{rows[0], rows[two ? N : 0]}, bytes / static_cast<std::ptrdiff_t>(sizeof(Word)), &ahead}}(two ? 2 : 1,
                                                                                                          to.from(key));
        continue;
      }
      const std::size_t row_bytes = static_cast<std::size_t>(q.columns) * sizeof(typename Format::Item);
      // as bytes, because rows of 16-bit numbers may begin at any even address
      for (int r = 0; r < count; ++r) std::memcpy(copy + r * row_words, static_cast<const void*>(rows[r]), row_bytes);
      alignas(64) T scores[max_decode_rows * N];
      DecodeQkTile<Mac, RowKeys<Format>>{q, {{copy, copy}, row_words, &ahead}}(1, {scores, N});
      for (int r = 0; r < q.rows; ++r)
        std::memcpy(to.s + r * to.stride + key, scores + r * N, static_cast<std::size_t>(count) * sizeof(T));
    }
  }
}

/// Returns whether row r sees keys 0 ... count - 1, one bit per key.
HWY_NOINLINE inline Word seen_keys(const Word* visible, int r, int count) {
  Word seen = 0;
  for (int n = count; n-- > 0;) seen = seen << 1 | (visible[n] >> r & 1);
  return seen;
}

/// For the keys [begin, end): sets scores to -inf where `visible` (the block's words; null: all keys are seen) has no
/// bit for the row, and raises the rows' maxima.
template <typename T>
HWY_NOINLINE void decode_maxima(const DecodeScoreRows<T>& to, T* maximum, int rows, int begin, int end,
                                const Word* visible) {
  const Tag<T> d;
  constexpr int N = lanes<T>;
  for (int r = 0; r < rows; ++r) {
    T* const s = to.s + r * to.stride;
    auto largest = minus_infinity<T>();
    for (int i = begin, count; i < end; i += count) {
      count = std::min(N, end - i);
      const auto there = hn::FirstN(d, static_cast<std::size_t>(count));
      auto x = hn::IfThenElse(there, hn::LoadU(d, s + i), minus_infinity<T>());
      if (visible) {
        x = hn::IfThenElse(lanes_of<T>(seen_keys(visible + i, r, count), 0), x, minus_infinity<T>());
        hn::BlendedStore(x, there, d, s + i);
      }
      largest = hn::Max(largest, x);
    }
    maximum[r] = std::max(maximum[r], hn::GetLane(hn::MaxOfLanes(d, largest)));
  }
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
