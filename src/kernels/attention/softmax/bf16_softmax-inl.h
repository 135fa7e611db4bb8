// src/kernels/attention/softmax/bf16_softmax-inl.h: computes exp2 of scores whose weights are rounded to bf16, with the
// accuracy that this needs.
#if defined(ATTN_BF16_SOFTMAX_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_BF16_SOFTMAX_INL_H
#undef ATTN_BF16_SOFTMAX_INL_H
#else
#define ATTN_BF16_SOFTMAX_INL_H
#endif

#include "kernels/x86/bf16_target.h"

#if HWY_TARGET == HWY_AVX3
#include <immintrin.h>

#include <limits>

ATTN_BEFORE_BF16_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {

inline constexpr float bf16_log2e = 1.44269504088896341f;

/// Computes exp2((score - reference) log2 e). 2^f over [0, 1) is a cubic with 1 and 2 at its ends; its error is at most
/// 1.04e-4, a twentieth of half a unit of bf16. -inf gives 0, NaN gives NaN. The reference itself gives exactly 1,
/// however large it is, because the difference is computed first.
HWY_INLINE __m512 bf16_weight(__m512 score, __m512 reference) {
  const __m512 x = _mm512_mul_ps(_mm512_sub_ps(score, reference), _mm512_set1_ps(bf16_log2e));
  const __m512 f = _mm512_reduce_ps(x, 1);  // x - floor(x)
  __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(0x1.4095eap-4f), f, _mm512_set1_ps(0x1.cf7a68p-3f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.640ea8p-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1));
  return _mm512_scalef_ps(p, x);  // times 2^floor(x)
}

/// Constants of a vector of rows, from which weights and derivatives are computed: the reference (the score with weight
/// 1 before the division), 1 / sum, and delta.
struct RowConstants {
  __m512 reference, inverse, delta;

  RowConstants(const float* m, const float* inverse_sum, const float* of_delta)
      : reference(_mm512_load_ps(m)), inverse(_mm512_load_ps(inverse_sum)), delta(_mm512_load_ps(of_delta)) {}
  /// Returns the rows that see the key: `seen` has those for which the mask shows it, and a score of -inf masks it too.
  HWY_INLINE __mmask16 sees(__m512 s, __mmask16 seen) const {
    return _mm512_mask_cmp_ps_mask(seen, s, _mm512_set1_ps(-std::numeric_limits<float>::infinity()), _CMP_NEQ_UQ);
  }
  HWY_INLINE __m512 weight(__m512 s, __mmask16 seen) const {
    return _mm512_maskz_mul_ps(seen, bf16_weight(s, reference), inverse);
  }
  HWY_INLINE __m512 derivative(__m512 p, __m512 dp, __mmask16 seen) const {
    return _mm512_maskz_mul_ps(seen, p, _mm512_sub_ps(dp, delta));
  }
};

/// Rounds two vectors to the nearest bf16 and joins them to words (low, high).
HWY_INLINE __m512i bf16_pairs(__m512 low, __m512 high) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21,
                                         5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return _mm512_permutexvar_epi16(order, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
}

}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
#endif
