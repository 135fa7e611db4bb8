// src/kernels/attention/tiles/bf16_dot_instruction-inl.h: declares what all bf16 products of attention use: pairs as
// 32-bit words, and the instruction for their dot product.
#if defined(ATTN_BF16_DOT_INSTRUCTION_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_BF16_DOT_INSTRUCTION_INL_H
#undef ATTN_BF16_DOT_INSTRUCTION_INL_H
#else
#define ATTN_BF16_DOT_INSTRUCTION_INL_H
#endif

#include "kernels/x86/bf16_target.h"
#include "kernels/attention/tiles/prefill_pv-inl.h"
#include "kernels/attention/tiles/prefill_qk-inl.h"
#include "kernels/simd/interleave-inl.h"

#if HWY_TARGET == HWY_AVX3
#include <immintrin.h>

ATTN_BEFORE_BF16_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {

inline constexpr int bf16_rows = 64;  // query rows of a tile, one per lane: four vectors

using Bf16Scores = ScoreOperands<DotPairs>;

/// Adds to `sum` the products of the high halves, then those of the low halves, and rounds after each (kernels/ref/
/// bf16_pairs.h, dot_pair).
HWY_INLINE __m512 dot_pair(__m512 sum, __m512i x, __m512i y) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(y));
}

}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
#endif
