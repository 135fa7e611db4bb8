// src/kernels/attention/softmax/online_softmax-inl.h: computes the online softmax of a block: new maximum, rescale
// factor, exp2, sum.
#if defined(ATTN_ONLINE_SOFTMAX_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_ONLINE_SOFTMAX_INL_H
#undef ATTN_ONLINE_SOFTMAX_INL_H
#else
#define ATTN_ONLINE_SOFTMAX_INL_H
#endif

#include "kernels/attention/mask/active_vectors.h"
#include "kernels/attention/query_lanes-inl.h"
#include "kernels/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// `weight_of` computes exp2((x - reference) * log2 e). `safe_reference` returns the maximum m, or 0 if it is -inf (no
/// key was seen yet), so that a score of -inf has weight 0.
template <typename T>
HWY_INLINE Vector<T> weight_of(Vector<T> x, Vector<T> reference) {
  return exp2_of_negative(Tag<T>(),
                          hn::Mul(hn::Sub(x, reference), hn::Set(Tag<T>(), static_cast<T>(1.4426950408889634074))));
}
template <typename T>
HWY_INLINE Vector<T> safe_reference(Vector<T> m) {
  return hn::IfThenZeroElse(hn::Eq(m, minus_infinity<T>()), m);
}

/// Computes, from the new maximum of each row in `alpha`: the new m, the rescale factor exp2((m_old - m) log2 e), which
/// replaces it in `alpha`, and `reference`, which is subtracted from scores before exp2. Sets the block's sum to 0.
template <typename T>
HWY_INLINE void raise_maximum(const QueryTileScratch<T>& scratch, int vectors) {
  const Tag<T> d;
  constexpr int N = lanes<T>;
  for (int at = 0; at < vectors * N; at += N) {
    const auto before = hn::Load(d, scratch.m + at), maximum = hn::Load(d, scratch.alpha + at);
    const auto reference = safe_reference<T>(maximum);
    hn::Store(maximum, d, scratch.m + at);
    hn::Store(reference, d, scratch.reference + at);
    hn::Store(hn::IfThenZeroElse(hn::Eq(before, minus_infinity<T>()), weight_of<T>(before, reference)), d,
              scratch.alpha + at);
    hn::Store(hn::Zero(d), d, scratch.sum + at);
  }
}

/// Computes l = fma(l, alpha, sum of the block).
template <typename T>
HWY_INLINE void accumulate_sums(const QueryTileScratch<T>& scratch, int vectors) {
  const Tag<T> d;
  constexpr int N = lanes<T>;
  for (int at = 0; at < vectors * N; at += N)
    hn::Store(hn::MulAdd(hn::Load(d, scratch.l + at), hn::Load(d, scratch.alpha + at), hn::Load(d, scratch.sum + at)),
              d, scratch.l + at);
}

/// Computes weights from scores, for `keys` keys and VECTORS vectors of query rows, and adds them to the sums. Several
/// vectors hide the latency of the chains of additions.
template <typename T, int VECTORS>
HWY_NOINLINE void weigh_columns(T* HWY_RESTRICT s, int keys, const T* HWY_RESTRICT reference_of,
                                T* HWY_RESTRICT sum_of) {
  const Tag<T> d;
  constexpr int R = query_tile_rows<T>, N = lanes<T>;
  Vector<T> reference[VECTORS], sum[VECTORS];
  ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) reference[v] = hn::Load(d, reference_of + v * N);
  ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) sum[v] = hn::Load(d, sum_of + v * N);
  for (int r = 0; r < keys; ++r, s += R)
    ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) {
      const auto p = weight_of<T>(hn::Load(d, s + v * N), reference[v]);
      sum[v] = hn::Add(sum[v], p);
      hn::Store(p, d, s + v * N);
    }
  ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) hn::Store(sum[v], d, sum_of + v * N);
}

/// Computes the online softmax of a block: weights, new m and l, rescale factors.
template <typename T>
HWY_INLINE void weigh_block(const QueryTileScratch<T>& scratch, const ActiveRanges& ranges, int vectors) {
  constexpr int R = query_tile_rows<T>, N = lanes<T>;
  raise_maximum(scratch, vectors);
  for (int g = 0; g < ranges.count; ++g)
    for_each_tile(ranges.first[g], ranges.last[g], [&]<int V>(int v) HWY_ATTR {
      weigh_columns<T, V>(scratch.s + ranges.key[g] * R + v * N, ranges.key[g + 1] - ranges.key[g],
                          scratch.reference + v * N, scratch.sum + v * N);
    });
  accumulate_sums(scratch, vectors);
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
