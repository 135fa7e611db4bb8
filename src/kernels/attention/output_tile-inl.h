// src/kernels/attention/output_tile-inl.h: O^T += V^T P^T for a block of keys: elements of V as broadcasts, queries in the lanes.
#if defined(ATTN_OUTPUT_TILE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_OUTPUT_TILE_INL_H
#undef ATTN_OUTPUT_TILE_INL_H
#else
#define ATTN_OUTPUT_TILE_INL_H
#endif

#include "kernels/attention/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// What becomes of a tile's chain over its keys.
enum class Fold {
  first,   // o = chain: nothing came before
  rescale, // o = fma(o, alpha, chain)
};

/// COLUMNS value columns x VECTORS: a chain of FMAs over the keys, folded into the span's output.
template <typename T, int COLUMNS, int VECTORS, Fold FOLD>
HWY_INLINE void output_tile(const T* HWY_RESTRICT p, const T* const* v_rows, std::int64_t column, int keys, T* HWY_RESTRICT o,
                            const T* HWY_RESTRICT alpha) {
  const Tag<T> d;
  constexpr int R = strip_rows<T>, N = lanes<T>;
  Vector<T> sum[COLUMNS][VECTORS];
  ATTN_UNROLL for (int c = 0; c < COLUMNS; ++c)
    ATTN_UNROLL for (int v = 0; v < VECTORS; ++v) sum[c][v] = hn::Zero(d);
  _Pragma("GCC unroll 2") for (int j = 0; j < keys; ++j) {
    Vector<T> weight[VECTORS];
    ATTN_UNROLL for (int v = 0; v < VECTORS; ++v) weight[v] = hn::Load(d, p + j * R + v * N);
    const T* value = v_rows[j] + column;
    ATTN_UNROLL for (int c = 0; c < COLUMNS; ++c) {
      const auto x = hn::Set(d, value[c]);
      ATTN_UNROLL for (int v = 0; v < VECTORS; ++v) sum[c][v] = hn::MulAdd(x, weight[v], sum[c][v]);
    }
  }
  ATTN_UNROLL for (int v = 0; v < VECTORS; ++v) {
    const auto a = FOLD == Fold::rescale ? hn::Load(d, alpha + v * N) : hn::Zero(d);
    ATTN_UNROLL for (int c = 0; c < COLUMNS; ++c) {
      T* place = o + c * R + v * N;
      hn::Store(FOLD == Fold::rescale ? hn::MulAdd(hn::Load(d, place), a, sum[c][v]) : sum[c][v], d, place);
    }
  }
}

template <typename T, int VECTORS, Fold FOLD>
HWY_NOINLINE void output_columns(const T* p, const T* const* v_rows, int keys, std::int64_t value_dim, T* o, const T* alpha) {
  constexpr int R = strip_rows<T>;
  constexpr int most = tile_keys(VECTORS, registers);
  std::int64_t c = 0;
  for (; c + most <= value_dim; c += most) output_tile<T, most, VECTORS, FOLD>(p, v_rows, c, keys, o + c * R, alpha);
  for (; c + 4 <= value_dim; c += 4) output_tile<T, 4, VECTORS, FOLD>(p, v_rows, c, keys, o + c * R, alpha);
  for (; c + 2 <= value_dim; c += 2) output_tile<T, 2, VECTORS, FOLD>(p, v_rows, c, keys, o + c * R, alpha);
  for (; c < value_dim; ++c) output_tile<T, 1, VECTORS, FOLD>(p, v_rows, c, keys, o + c * R, alpha);
}

/// Keys [0, keys) of the block, from weight row `row`, for the vectors [first, last), into `o`.
template <typename T, Fold FOLD>
HWY_INLINE void output_block(const Strip<T>& strip, const T* const* v_rows, int keys, std::int64_t value_dim, int row, int first, int last, T* o) {
  constexpr int R = strip_rows<T>, N = lanes<T>;
  for_each_tile(first, last, [&]<int V>(int v) HWY_ATTR {
    output_columns<T, V, FOLD>(strip.s + row * R + v * N, v_rows, keys, value_dim, o + v * N, strip.alpha + v * N);
  });
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
