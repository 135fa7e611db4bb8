// src/kernels/attention/score_tile-inl.h: S^T = K Q^T for a block of keys: rows of K as broadcasts, queries in the lanes.
#if defined(ATTN_SCORE_TILE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_SCORE_TILE_INL_H
#undef ATTN_SCORE_TILE_INL_H
#else
#define ATTN_SCORE_TILE_INL_H
#endif

#include "kernels/attention/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// KEYS x VECTORS scores: each a chain of FMAs over d. The running maximum of the lanes goes through `alpha`.
template <typename T, int KEYS, int VECTORS>
HWY_INLINE void score_tile(const T* HWY_RESTRICT q, const T* const* k, std::int64_t dim, T* HWY_RESTRICT s, T* HWY_RESTRICT alpha) {
  const Tag<T> d;
  constexpr int R = strip_rows<T>, N = lanes<T>;
  Vector<T> sum[KEYS][VECTORS];
  ATTN_UNROLL for (int r = 0; r < KEYS; ++r) ATTN_UNROLL for (int v = 0; v < VECTORS; ++v) sum[r][v] = hn::Zero(d);
  const T* row[KEYS];
  ATTN_UNROLL for (int r = 0; r < KEYS; ++r) row[r] = k[r];
  _Pragma("GCC unroll 2") for (std::int64_t c = 0; c < dim; ++c) {
    Vector<T> x[VECTORS];
    ATTN_UNROLL for (int v = 0; v < VECTORS; ++v) x[v] = hn::Load(d, q + c * R + v * N);
    ATTN_UNROLL for (int r = 0; r < KEYS; ++r) {
      const auto key = hn::Set(d, row[r][c]);
      ATTN_UNROLL for (int v = 0; v < VECTORS; ++v) sum[r][v] = hn::MulAdd(key, x[v], sum[r][v]);
    }
  }
  ATTN_UNROLL for (int v = 0; v < VECTORS; ++v) {
    auto largest = hn::Load(d, alpha + v * N);
    ATTN_UNROLL for (int r = 0; r < KEYS; ++r) {
      largest = hn::Max(largest, sum[r][v]);
      hn::Store(sum[r][v], d, s + r * R + v * N);
    }
    hn::Store(largest, d, alpha + v * N);
  }
}

/// `keys` rows of K against VECTORS vectors of queries.
template <typename T, int VECTORS>
HWY_NOINLINE void score_columns(const T* q, const T* const* k, int keys, std::int64_t dim, T* s, T* alpha) {
  constexpr int R = strip_rows<T>;
  constexpr int most = tile_keys(VECTORS, registers);
  int r = 0;
  for (; r + most <= keys; r += most) score_tile<T, most, VECTORS>(q, k + r, dim, s + r * R, alpha);
  for (; r + 4 <= keys; r += 4) score_tile<T, 4, VECTORS>(q, k + r, dim, s + r * R, alpha);
  for (; r < keys; ++r) score_tile<T, 1, VECTORS>(q, k + r, dim, s + r * R, alpha);
}

/// The scores of keys [0, keys) for the vectors [first, last) of the strip.
template <typename T>
HWY_INLINE void score_block(const Strip<T>& strip, const T* const* k, int keys, std::int64_t dim, int row, int first, int last) {
  constexpr int R = strip_rows<T>, N = lanes<T>;
  for_each_tile(first, last, [&]<int V>(int v) HWY_ATTR {
    score_columns<T, V>(strip.q + v * N, k, keys, dim, strip.s + row * R + v * N, strip.alpha + v * N);
  });
}

/// How a walk makes its scores: here by dot products of scaled queries. Stands after the strip in its scratch.
template <typename T>
class DotScore {
 public:
  static std::size_t bytes(std::int64_t) { return 0; }
  DotScore(const AttentionProblem& problem, void*) : scale_(static_cast<T>(problem.scale)), dim_(problem.dim) {}

  /// The turned queries, scaled once.
  void prepare_queries(const Strip<T>& strip, int vectors) {
    const Tag<T> d;
    constexpr int R = strip_rows<T>, N = lanes<T>;
    const auto scale = hn::Set(d, scale_);
    for (std::int64_t c = 0; c < dim_; ++c)
      for (int x = 0; x < vectors; ++x) {
        T* place = strip.q + c * R + x * N;
        hn::Store(hn::Mul(hn::Load(d, place), scale), d, place);
      }
  }

  /// The keys of a block, before its groups.
  void load_keys(const T* const*, int) {}

  /// Scores of keys [key, end) of the block and vectors [first, last) into strip.s, their maximum into strip.alpha.
  void group(const Strip<T>& strip, const T* const* k, int key, int end, int first, int last) {
    score_block(strip, k + key, end - key, dim_, key, first, last);
  }

 private:
  T scale_;
  std::int64_t dim_;
};

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
