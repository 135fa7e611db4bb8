// src/kernels/attention/few_rows-inl.h: strips of few rows (decoding): O += P V with value columns in the lanes; K and
// V read in order.
//
//   many rows: lanes are rows, each element of V is broadcast to them      few rows: most of those lanes would be
//                                                                          empty; lanes are columns of V, each weight
//                                                                          is broadcast to them
//
// An output element is the same chain over the keys: what the lanes run along changes no bit.
#if defined(ATTN_FEW_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_FEW_ROWS_INL_H
#undef ATTN_FEW_ROWS_INL_H
#else
#define ATTN_FEW_ROWS_INL_H
#endif

#include "kernels/attention/lines_ahead.h"
#include "kernels/attention/tile-inl.h"
#include "kernels/turn-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// More rows fill enough lanes the other way round.
inline constexpr int few_rows = 8;

/// The output of few rows: row after row, each as vectors of columns. The last vector holds the last N columns: where N
/// does not divide their number it shares some with the vector before.
template <typename T>
class RowOutput {
 public:
  static constexpr int N = lanes<T>;
  /// Whether rows (of one vector) and columns are for this; then `memory` holds at least 2 * few_rows * (value_dim + N)
  /// elements.
  static bool takes(std::int64_t rows, std::int64_t value_dim) {
    return rows <= few_rows && rows <= N && value_dim >= N;
  }

  /// `columns` that may be read of a row of V: value_dim, or more.
  RowOutput(T* memory, std::int64_t columns) : o_(memory), columns_(columns), vectors_((columns + N - 1) / N) {}

  /// Calls tile.template operator()<ROWS, VECTORS>(row, column, o) for all of it: ROWS rows from `row`, VECTORS vectors
  /// of columns from `column`, kept from `o` on, the rows stride() apart.
  template <class Tile>
  void for_each(int rows, const Tile& tile) const {
    int row = 0;
    for (; row + 4 <= rows; row += 4) for_each_vector<4, registers == 16 ? 2 : 4>(row, tile);
    for (; row < rows; ++row) for_each_vector<1, 8>(row, tile);  // enough chains to hide an FMA's latency
  }
  std::int64_t stride() const { return vectors_ * N; }
  static std::int64_t stride(std::int64_t columns) { return (columns + N - 1) / N * N; }
  /// From an output to the place of its chain, where a block is computed in parts.
  std::int64_t to_sums() const { return few_rows * stride(); }
  T* memory() const { return o_; }
  /// The column that a vector's first one is.
  std::int64_t column_of(std::int64_t vector) const { return vector * N + N <= columns_ ? vector * N : columns_ - N; }
  std::int64_t vectors() const { return vectors_; }

 private:
  template <int ROWS, int VECTORS, class Tile>
  void for_each_vector(int row, const Tile& tile) const {
    T* const o = o_ + row * stride();
    std::int64_t v = 0;
    for (; v + VECTORS <= columns_ / N; v += VECTORS)
      tile.template operator()<ROWS, VECTORS>(row, column_of(v), o + v * N);
    for (; v < vectors_; ++v) tile.template operator()<ROWS, 1>(row, column_of(v), o + v * N);
  }

  T* o_;
  std::int64_t columns_, vectors_;
};

/// Whether tiles ask for memory themselves. For others LinesAhead::use() does, between them.
template <typename T>
inline constexpr bool asks_ahead = (HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2) && sizeof(T) == 4;

/// Calls tile.template operator()<TIMES>(): how often each of LINES lines a step is asked for. Of AVX2's narrow steps
/// once: they would take a tenth more time.
template <int LINES, class Tile>
HWY_INLINE void by_distance(const LinesAhead& ahead, const Tile& tile) {
  if constexpr (LINES > 0 && registers == 32) {
    if (ahead.far()) return tile.template operator()<LinesAhead::times_of_far>();
  }
  tile.template operator()<1>();
}
/// The step's lines to ask for; where there are none, those that it uses.
template <int LINES, int TIMES>
HWY_INLINE Asks<TIMES> take(LinesAhead& ahead, const void* used) {
  if constexpr (LINES > 0) return ahead.take<LINES, TIMES>(place_of(used));
  else return {};
}

/// A block's values are weighted in parts of so many keys: what lies ahead is asked for at their pace.
inline constexpr int few_part = 32;

/// Where a part's products go: o[row][stride], after the last part times alpha what came before (first: nothing); until
/// then the chains wait to_sums further on.
template <typename T>
struct FewFold {
  const T* alpha;
  std::int64_t stride, to_sums;
  LinesAhead* ahead;  // of the values
  bool first, begins, ends;

  template <int ROWS, int VECTORS>
  HWY_INLINE void start(const T* o, Vector<T> (&sum)[ROWS][VECTORS]) const {
    const Tag<T> d;
    ATTN_UNROLL_FOR (int r = 0; r < ROWS; ++r)
      ATTN_UNROLL_FOR (int x = 0; x < VECTORS; ++x)
        sum[r][x] = begins ? hn::Zero(d) : hn::Load(d, o + to_sums + r * stride + x * lanes<T>);
  }
  template <int ROWS, int VECTORS>
  HWY_INLINE void finish(int row, T* o, const Vector<T> (&sum)[ROWS][VECTORS]) const {
    const Tag<T> d;
    ATTN_UNROLL_FOR (int r = 0; r < ROWS; ++r) {
      T* const place = o + r * stride;
      const auto factor = hn::Set(d, alpha[row + r]);
      ATTN_UNROLL_FOR (int x = 0; x < VECTORS; ++x) {
        T* const at = place + x * lanes<T>;
        if (!ends) hn::Store(sum[r][x], d, at + to_sums);
        else hn::Store(first ? sum[r][x] : hn::MulAdd(hn::Load(d, at), factor, sum[r][x]), d, at);
      }
    }
  }
};

/// What `keys` keys add to few rows: weights p[key][p_stride].
template <typename T>
struct FewRowsTile {
  const T* const* v_rows;
  int keys;
  const T* p;
  std::int64_t p_stride;
  FewFold<T> fold;

  template <int ROWS, int VECTORS>
  HWY_INLINE void operator()(int row, std::int64_t column, T* o) const {
    constexpr int lines =
        asks_ahead<T> && VECTORS > 1 ? (VECTORS * lanes<T> * static_cast<int>(sizeof(T)) + 63) / 64 : 0;
    by_distance<lines>(*fold.ahead, [&]<int TIMES>() HWY_ATTR { tile<ROWS, VECTORS, lines, TIMES>(row, column, o); });
  }

  template <int ROWS, int VECTORS, int LINES, int TIMES>
  HWY_NOINLINE void tile(int row, std::int64_t column, T* o) const {
    const Tag<T> d;
    constexpr int N = lanes<T>;
    Vector<T> sum[ROWS][VECTORS];
    fold.start(o, sum);
    const T* weights = p + row;
    for (int key = 0; key < keys; ++key, weights += p_stride) {
      const auto next = take<LINES, TIMES>(*fold.ahead, v_rows[key]);
      const T* const value = v_rows[key] + column;
      Vector<T> values[VECTORS];
      ATTN_UNROLL_FOR (int x = 0; x < VECTORS; ++x) values[x] = hn::LoadU(d, value + x * N);
      ATTN_UNROLL_FOR (int r = 0; r < ROWS; ++r) {
        const auto weight = hn::Set(d, weights[r]);
        ATTN_UNROLL_FOR (int x = 0; x < VECTORS; ++x) sum[r][x] = hn::MulAdd(values[x], weight, sum[r][x]);
        ask_share<LINES>(next, r, ROWS);
      }
    }
    fold.finish(row, o, sum);
  }
};

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
