// src/kernels/simd/interleave-inl.h: interleaves two rows of 16-bit items into one row of 32-bit words (first row's
// item in the low half), the operands of bf16 products, and restores the column order after an interleave within
// 128-bit lanes.
#if defined(ATTN_INTERLEAVE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_INTERLEAVE_INL_H
#undef ATTN_INTERLEAVE_INL_H
#else
#define ATTN_INTERLEAVE_INL_H
#endif

#include <hwy/highway.h>

#include <cstdint>

#if HWY_TARGET == HWY_AVX3
#include <immintrin.h>

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {

/// Interleaves 32 items of each row into 32 words and stores them: words 0-15 at `words`, words 16-31 `half` words
/// later. Both addresses are 64-byte aligned.
HWY_INLINE void store_interleaved(__m512i low, __m512i high, void* words, std::int64_t half = 16) {
  const __m512i first = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37,
                                         5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
  auto* const to = static_cast<std::uint32_t*>(words);
  _mm512_store_si512(to, _mm512_permutex2var_epi16(low, first, high));
  _mm512_store_si512(to + half, _mm512_permutex2var_epi16(low, _mm512_add_epi16(first, _mm512_set1_epi16(16)), high));
}

/// Returns a mask of the first `count` of 16 lanes.
HWY_INLINE __mmask16 first_lanes(std::int64_t count) {
  return count >= 16 ? 0xFFFF : count <= 0 ? 0 : static_cast<__mmask16>((1u << count) - 1);
}

/// Interleaves 16 columns of two rows into words (low, high). A column whose bit in `columns` is 0 is not read and
/// counts as 0.
HWY_INLINE __m512i words_of_rows(const std::uint16_t* low, const std::uint16_t* high, __mmask16 columns) {
  const __m512i a = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(columns, low)),
                b = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(columns, high));
  return _mm512_or_si512(a, _mm512_slli_epi32(b, 16));
}

/// Restores the order of 32 columns. unpacklo and unpackhi interleave within 128-bit lanes, so `low` holds columns 0-3,
/// 8-11, 16-19, 24-27 and `high` the others; afterwards `low` holds columns 0-15 and `high` 16-31.
HWY_INLINE void in_order(__m512& low, __m512& high) {
  const __m512i first_half = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const __m512 all = _mm512_permutex2var_ps(low, first_half, high);
  high = _mm512_permutex2var_ps(low, _mm512_add_epi32(first_half, _mm512_set1_epi32(8)), high);
  low = all;
}

}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // HWY_AVX3
#endif  // include guard
