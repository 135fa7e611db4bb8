// src/kernels/attention/tiles/decode_pv-inl.h: PV of decode rows: value columns in the lanes; V is read in order.
//
//   many rows: lanes are rows, each element of V is broadcast to them      decode rows: most of those lanes would be
//                                                                          empty; lanes are columns of V, each weight
//                                                                          is broadcast to them
//
// An output element is the same chain over the keys: what the lanes run along changes no bit.
#if defined(ATTN_DECODE_PV_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_DECODE_PV_INL_H
#undef ATTN_DECODE_PV_INL_H
#else
#define ATTN_DECODE_PV_INL_H
#endif

#include "kernels/prefetch/stream_prefetch.h"
#include "kernels/attention/softmax/output_accumulator-inl.h"
#include "kernels/simd/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// Whether the register tiles prefetch themselves. If not, StreamPrefetcher::use() prefetches between them.
template <typename T>
inline constexpr bool prefetches_ahead = (HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2) && sizeof(T) == 4;

/// Calls tile.template operator()<TIMES>(), where TIMES says how often each line is prefetched: once in AVX2, whose
/// steps are short, because more would take 10 % more time.
template <int LINES, class Tile>
HWY_INLINE void by_distance(const StreamPrefetcher& ahead, const Tile& tile) {
  if constexpr (LINES > 0 && registers == 32) {
    if (ahead.exceeds_llc()) return tile.template operator()<StreamPrefetcher::prefetch_repeats>();
  }
  tile.template operator()<1>();
}
/// The lines that a step prefetches; if none are due, the lines that it reads.
template <int LINES, int TIMES>
HWY_INLINE PrefetchAddresses<TIMES> take(StreamPrefetcher& ahead, const void* used) {
  if constexpr (LINES > 0) return ahead.take<LINES, TIMES>(address_of(used));
  else return {};
}

/// PV of a block is computed in parts of this many keys; prefetching continues between them.
inline constexpr int decode_pv_keys = 32;

/// Where the sums of a part go: to o[row][stride], which is rescaled by alpha, after the last part of a block; until
/// then they are kept `to_sums` elements after the output.
template <typename T>
struct PvEpilogue {
  const T* alpha;
  std::int64_t stride, to_sums;
  StreamPrefetcher* ahead;  // of the values
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

/// Computes PV of `keys` keys for decode rows; weights p[key][p_stride].
template <typename T>
struct DecodePvTile {
  const T* const* v_rows;
  int keys;
  const T* p;
  std::int64_t p_stride;
  PvEpilogue<T> epilogue;

  template <int ROWS, int VECTORS>
  HWY_INLINE void operator()(int row, std::int64_t column, T* o) const {
    constexpr int lines =
        prefetches_ahead<T> && VECTORS > 1 ? (VECTORS * lanes<T> * static_cast<int>(sizeof(T)) + 63) / 64 : 0;
    by_distance<lines>(*epilogue.ahead,
                       [&]<int TIMES>() HWY_ATTR { tile<ROWS, VECTORS, lines, TIMES>(row, column, o); });
  }

  template <int ROWS, int VECTORS, int LINES, int TIMES>
  HWY_NOINLINE void tile(int row, std::int64_t column, T* o) const {
    const Tag<T> d;
    constexpr int N = lanes<T>;
    Vector<T> sum[ROWS][VECTORS];
    epilogue.start(o, sum);
    const T* weights = p + row;
    for (int key = 0; key < keys; ++key, weights += p_stride) {
      const auto next = take<LINES, TIMES>(*epilogue.ahead, v_rows[key]);
      const T* const value = v_rows[key] + column;
      Vector<T> values[VECTORS];
      ATTN_UNROLL_FOR (int x = 0; x < VECTORS; ++x) values[x] = hn::LoadU(d, value + x * N);
      ATTN_UNROLL_FOR (int r = 0; r < ROWS; ++r) {
        const auto weight = hn::Set(d, weights[r]);
        ATTN_UNROLL_FOR (int x = 0; x < VECTORS; ++x) sum[r][x] = hn::MulAdd(values[x], weight, sum[r][x]);
        prefetch_share<LINES>(next, r, ROWS);
      }
    }
    epilogue.finish(row, o, sum);
  }
};

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
