// src/kernels/attention/tiles/bf16_prefill-inl.h: what bf16 products share: pairs as 32-bit words, and their dot
// product.
#if defined(ATTN_BF16_PREFILL_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_BF16_PREFILL_INL_H
#undef ATTN_BF16_PREFILL_INL_H
#else
#define ATTN_BF16_PREFILL_INL_H
#endif

#include "kernels/x86/bf16_target.h"
#include "kernels/attention/tiles/prefill_pv-inl.h"
#include "kernels/attention/tiles/prefill_qk-inl.h"
#include "kernels/simd/interleave-inl.h"

#if HWY_TARGET == HWY_AVX3
#include <immintrin.h>

ATTN_BEFORE_BF16_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {

inline constexpr int bf16_rows = 64;  // one row per lane, four vectors

using Bf16Scores = ScoreOperands<DotPairs>;

/// Computes sum + x.low * y.low + x.high * y.high in each lane.
HWY_INLINE __m512 dot_pair(__m512 sum, __m512i x, __m512i y) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(y));
}

/// Returns a mask of the first `count` of 16 lanes.
HWY_INLINE __mmask16 first_lanes(std::int64_t count) {
  return count >= 16 ? 0xFFFF : count <= 0 ? 0 : static_cast<__mmask16>((1u << count) - 1);
}

/// Interleaves 16 columns of two rows to words (low, high); columns without a bit count as 0.
HWY_INLINE __m512i words_of_rows(const std::uint16_t* low, const std::uint16_t* high, __mmask16 columns) {
  const __m512i a = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(columns, low)),
                b = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(columns, high));
  return _mm512_or_si512(a, _mm512_slli_epi32(b, 16));
}

/// Columns (0-3, 8-11, 16-19, 24-27) and the others between them, as pairs are interleaved in halves, to (0-15) and
/// (16-31).
HWY_INLINE void in_order(__m512& low, __m512& high) {
  const __m512i first_half = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const __m512 all = _mm512_permutex2var_ps(low, first_half, high);
  high = _mm512_permutex2var_ps(low, _mm512_add_epi32(first_half, _mm512_set1_epi32(8)), high);
  low = all;
}

}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
#endif
