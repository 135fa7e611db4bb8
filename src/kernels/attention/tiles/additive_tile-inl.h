// src/kernels/attention/tiles/additive_tile-inl.h: computes additive scores of a block, w . tanh(q + k): query rows in
// the lanes, channels in the inner loop.
#if defined(ATTN_ADDITIVE_TILE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_ADDITIVE_TILE_INL_H
#undef ATTN_ADDITIVE_TILE_INL_H
#else
#define ATTN_ADDITIVE_TILE_INL_H
#endif

#include "kernels/math/additive_exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// Keys x vectors of a tile: eight divisions in flight hide their latency; AVX2 has registers for four.
inline constexpr int additive_keys = HWY_TARGET == HWY_AVX2 ? 2 : 4;
inline constexpr int additive_vectors = 2;
/// The vectors of a tile in f64, where tanh itself is computed for each pair. The tile has one key, so that the
/// constants of tanh stay in registers.
inline constexpr int tanh_vectors = HWY_TARGET == HWY_AVX2 ? 2 : 4;

/// The exponentials of queries or of keys: H alone, or mantissas and exponents. Queries: [C][R]; keys: rows of
/// `stride`.
struct SplitRows {
  const float* high = nullptr;
  const float* exponent = nullptr;
  std::int64_t stride = 0;

  HWY_INLINE SplitRows at(std::int64_t offset) const {
    return {high + offset, exponent ? exponent + offset : nullptr, stride};
  }
};

/// Computes the sum of w: a chain in f64, rounded once.
inline float additive_weight_sum(const float* w, std::int64_t channels) {
  double sum = 0;
  for (std::int64_t c = 0; c < channels; ++c) sum += static_cast<double>(w[c]);
  return static_cast<float>(sum);
}

/// Calls part(vector) for the vectors [first, last), split into tiles of MOST vectors or of one.
template <int MOST, typename F>
HWY_INLINE void for_each_part(int first, int last, F&& part) {
  for (; first + MOST <= last; first += MOST) part.template operator()<MOST>(first);
  for (; first < last; ++first) part.template operator()<1>(first);
}

/// Computes min(sum, 2^60); NaN stays NaN.
HWY_INLINE Vector<float> cut_denominator(Vector<float> sum) {
  const Tag<float> d;
  const auto limit = hn::Set(d, 0x1p60f);
#if HWY_ARCH_X86
  return hn::Min(limit, sum);  // x86 returns the second operand if one is NaN
#else
  return hn::IfThenElse(hn::Gt(sum, limit), limit, sum);
#endif
}

/// Computes min(1 + e^(2(q + k)), 2^60) in channel c, for vector v of the queries and key r.
template <bool WIDE>
HWY_INLINE Vector<float> one_plus(const SplitRows& q, const SplitRows& k, std::int64_t c, int v, int r) {
  const Tag<float> d;
  constexpr int R = query_tile_rows<float>, N = lanes<float>;
  const auto one = hn::Set(d, 1.0f), key = hn::Set(d, k.high[r * k.stride + c]);
  auto row = hn::Load(d, q.high + c * R + v * N);
  if constexpr (WIDE) {
    const auto n = hn::Add(hn::Load(d, q.exponent + c * R + v * N), hn::Set(d, k.exponent[r * k.stride + c]));
    row = hn::Mul(row, two_to(d, hn::Min(hn::Max(n, hn::Set(d, -100.0f)), hn::Set(d, 100.0f))));
  }
  return cut_denominator(hn::MulAdd(row, key, one));
}

/// Writes scores and updates the running maximum of the lanes in `alpha`.
template <typename T, int KEYS, int VECTORS>
HWY_INLINE void store_scores(const Vector<T> (&score)[KEYS][VECTORS], std::int64_t R, T* HWY_RESTRICT s,
                             T* HWY_RESTRICT alpha) {
  const Tag<T> d;
  constexpr int N = lanes<T>;
  ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) {
    auto largest = hn::Load(d, alpha + v * N);
    ATTN_UNROLL_FOR (int r = 0; r < KEYS; ++r) {
      largest = hn::Max(largest, score[r][v]);
      hn::Store(score[r][v], d, s + r * R + v * N);
    }
    hn::Store(largest, d, alpha + v * N);
  }
}

/// Computes the scores W - 2 sum_c w_c / (1 + e^(2(q_c + k_c))), where W is the sum of w; two channels share one
/// division.
template <bool WIDE, int KEYS, int VECTORS>
HWY_INLINE void additive_tile(const SplitRows& q, const SplitRows& k, const float* HWY_RESTRICT w, float weight_sum,
                              std::int64_t channels, float* HWY_RESTRICT s, float* HWY_RESTRICT alpha) {
  const Tag<float> d;
  Vector<float> sum[KEYS][VECTORS];
  ATTN_UNROLL_FOR (int r = 0; r < KEYS; ++r)
    ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) sum[r][v] = hn::Zero(d);
  std::int64_t c = 0;
  for (; c + 1 < channels; c += 2) {
    const auto w0 = hn::Set(d, w[c]), w1 = hn::Set(d, w[c + 1]);
    ATTN_UNROLL_FOR (int r = 0; r < KEYS; ++r)
      ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) {
        const auto first = one_plus<WIDE>(q, k, c, v, r), second = one_plus<WIDE>(q, k, c + 1, v, r);
        sum[r][v] = hn::Add(sum[r][v], hn::Div(hn::MulAdd(w1, first, hn::Mul(w0, second)), hn::Mul(first, second)));
      }
  }
  if (c < channels)
    ATTN_UNROLL_FOR (int r = 0; r < KEYS; ++r)
      ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v)
        sum[r][v] = hn::Add(sum[r][v], hn::Div(hn::Set(d, w[c]), one_plus<WIDE>(q, k, c, v, r)));
  const auto minus_two = hn::Set(d, -2.0f), all = hn::Set(d, weight_sum);
  ATTN_UNROLL_FOR (int r = 0; r < KEYS; ++r)
    ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) sum[r][v] = hn::MulAdd(minus_two, sum[r][v], all);
  store_scores<float, KEYS, VECTORS>(sum, query_tile_rows<float>, s, alpha);
}

/// Computes `keys` rows of K against VECTORS vectors of queries.
template <bool WIDE, int VECTORS>
HWY_NOINLINE void additive_columns(const SplitRows& q, const SplitRows& k, int keys, const float* w, float weight_sum,
                                   std::int64_t channels, float* s, float* alpha) {
  constexpr int R = query_tile_rows<float>;
  int r = 0;
  for (; r + additive_keys <= keys; r += additive_keys)
    additive_tile<WIDE, additive_keys, VECTORS>(q, k.at(r * k.stride), w, weight_sum, channels, s + r * R, alpha);
  for (; r < keys; ++r)
    additive_tile<WIDE, 1, VECTORS>(q, k.at(r * k.stride), w, weight_sum, channels, s + r * R, alpha);
}

/// f64: computes a chain over c of fma(w_c, tanh(q_c + k_c), sum), one key after the other. R: rows of the query tile.
template <int VECTORS>
HWY_NOINLINE void tanh_columns(const double* HWY_RESTRICT q, const double* const* k, int keys,
                               const double* HWY_RESTRICT w, std::int64_t channels, std::int64_t R,
                               double* HWY_RESTRICT s, double* HWY_RESTRICT alpha) {
  const Tag<double> d;
  constexpr int N = lanes<double>;
  for (int r = 0; r < keys; ++r) {
    Vector<double> sum[1][VECTORS];
    ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) sum[0][v] = hn::Zero(d);
    for (std::int64_t c = 0; c < channels; ++c) {
      const auto weight = hn::Set(d, w[c]), key = hn::Set(d, k[r][c]);
      ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v)
        sum[0][v] = hn::MulAdd(weight, tanh(d, hn::Add(hn::Load(d, q + c * R + v * N), key)), sum[0][v]);
    }
    store_scores<double, 1, VECTORS>(sum, R, s + r * R, alpha);
  }
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
