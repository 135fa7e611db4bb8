// src/kernels/attention/tiles/decode_pv-inl.h: computes PV of decode rows: value columns are in the lanes, and V is
// read in order.
//
//   many rows: lanes are rows, each element of V is broadcast to them      decode rows: most of those lanes would be
//                                                                          empty; lanes are columns of V, each weight
//                                                                          is broadcast to them
//
// An output element is the same chain over the keys in both, so the choice of lanes changes no bit. There is one tile
// for all formats: a loader of values (RowValues and the like) says how they are read, converted and prefetched.
#if defined(ATTN_DECODE_PV_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_DECODE_PV_INL_H
#undef ATTN_DECODE_PV_INL_H
#else
#define ATTN_DECODE_PV_INL_H
#endif

#include "kernels/attention/kv/decode_row_readers-inl.h"
#include "kernels/attention/softmax/output_accumulator-inl.h"
#include "kernels/prefetch/decode_kv_prefetch.h"
#include "kernels/simd/multiply_add-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// Whether the register tiles prefetch themselves. If not, StreamPrefetcher::use() prefetches between them.
template <typename T>
inline constexpr bool prefetches_ahead = (HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2) && sizeof(T) == 4;

/// Calls tile.template operator()<TIMES>(), where TIMES says how often each line is prefetched: prefetch_repeats times
/// if K and V exceed the last-level cache, else once. AVX2 prefetches once, because its steps are short and more
/// prefetches would take 10 % more time.
template <int LINES, class Tile>
HWY_INLINE void by_distance(const StreamPrefetcher& ahead, const Tile& tile) {
  if constexpr (LINES > 0 && registers == 32) {
    if (ahead.exceeds_llc()) return tile.template operator()<StreamPrefetcher::prefetch_repeats>();
  }
  tile.template operator()<1>();
}
/// Returns the lines that a step prefetches; if none are due, those that it reads.
template <int LINES, int TIMES>
HWY_INLINE PrefetchAddresses<TIMES> take(StreamPrefetcher& ahead, const void* used) {
  if constexpr (LINES > 0) return ahead.take<TIMES>(LINES, address_of(used));
  else return {};
}

/// PV of a block is computed in parts of this many keys; prefetching continues between them.
inline constexpr int decode_pv_keys = 32;

/// Where the sums of a part go. `begins`, `ends`: the part is the first, the last of its block; `first`: no block was
/// accumulated before. The last part of a block computes o = fma(o, alpha, sum), [row][stride]. Until then the sums are
/// kept `to_sums` elements after the output.
template <typename T>
struct PvEpilogue {
  const T* alpha;
  std::int64_t stride, to_sums;
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

/// The loader of values that are stored in rows, for `keys` keys.
template <class Format>
struct RowValues {
  using Compute = typename Format::Compute;
  static constexpr bool eight_rows = registers == 32 && sizeof(Compute) == 4;
  static constexpr int N = lanes<Compute>;
  template <int VECTORS>
  static constexpr int lines = prefetches_ahead<Compute> && VECTORS > 1
                                   ? (VECTORS* N* static_cast<int>(sizeof(typename Format::Item)) + 63) / 64
                                   : 0;
  const typename Format::Item* const* rows;
  int keys;
  StreamPrefetcher* ahead;

  /// Calls visit(values, share) for every key in order, with VECTORS vectors of columns from `column` on; share(r)
  /// prefetches the part of the step's lines that falls to row r.
  template <int ROWS, int VECTORS, int TIMES, class F>
  HWY_INLINE void each(int, std::int64_t column, F&& visit) const {
    for (int key = 0; key < keys; ++key) {
      const auto next = take<lines<VECTORS>, TIMES>(*ahead, rows[key]);
      const auto* const at = rows[key] + column;
      Vector<Compute> values[VECTORS];
      ATTN_UNROLL_FOR (int x = 0; x < VECTORS; ++x) values[x] = Format::load(at + x * N);
      visit(values, [&](int r) HWY_ATTR { prefetch_share<lines<VECTORS>>(next, r, ROWS); });
    }
  }
  template <int VECTORS, class Tile>
  HWY_INLINE void prefetching(const Tile& tile) const {
    by_distance<lines<VECTORS>>(*ahead, tile);
  }
  /// Puts a row's sums into the order of the columns.
  template <int VECTORS>
  static HWY_INLINE void order(Vector<Compute> (&)[VECTORS]) {}
};

/// Weights of decode rows: p[key][stride], rows adjacent.
template <typename T>
struct DecodeWeights {
  const T* p;
  std::int64_t stride;
  static constexpr std::int64_t row_stride = 1;
};
/// The `Sum` of a tile that does not sum the weights.
struct NoWeightSum {
  NoWeightSum of_tile(bool, bool) const { return {}; }
  void add() const {}
  void end() const {}
};

/// Whether a loader of values has registers for tiles of eight rows.
template <class Values>
inline constexpr bool has_eight_rows = [] {
  if constexpr (requires { Values::eight_rows; }) return Values::eight_rows;
  else return false;
}();

/// Computes PV of decode rows: ROWS rows x VECTORS vectors of columns.
template <class Mac, class Values, class Weights, class Sum = NoWeightSum>
struct DecodePvTile {
  using T = typename Mac::Sum;
  static constexpr bool eight_rows = has_eight_rows<Values>;
  Values values;
  Weights p;
  PvEpilogue<T> epilogue;
  Sum weight_sum = {};  // computed by the first tile

  template <int ROWS, int VECTORS>
  HWY_INLINE void operator()(int row, std::int64_t column, T* o) const {
    values.template prefetching<VECTORS>([&]<int TIMES>()
                                             HWY_ATTR { this->template tile<ROWS, VECTORS, TIMES>(row, column, o); });
  }

 private:
  template <int ROWS, int VECTORS, int TIMES>
  HWY_NOINLINE void tile(int row, std::int64_t column, T* o) const {
    Vector<T> sum[ROWS][VECTORS];
    epilogue.start(o, sum);
    const auto* weights = p.p + row * p.row_stride;
    const std::int64_t stride = p.stride, row_stride = p.row_stride;
    auto adds = weight_sum.of_tile(row == 0 && column == 0, epilogue.begins);
    values.template each<ROWS, VECTORS, TIMES>(
        row, column, [&](const Vector<T>(&value)[VECTORS], const auto& share) __attribute__((always_inline)) HWY_ATTR {
          adds.add();
          ATTN_UNROLL_FOR (int r = 0; r < ROWS; ++r) {
            const auto weight = Mac::broadcast(weights[r * row_stride]);
            ATTN_UNROLL_FOR (int x = 0; x < VECTORS; ++x) sum[r][x] = Mac::step(value[x], weight, sum[r][x]);
            share(r);
          }
          weights += stride;
        });
    if (epilogue.ends)
      ATTN_UNROLL_FOR (int r = 0; r < ROWS; ++r) Values::order(sum[r]);
    adds.end();
    epilogue.finish(row, o, sum);
  }
};

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
