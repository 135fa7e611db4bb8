// src/kernels/simd/interleave-inl.h: interleaves two rows of 16-bit items to one row of words (low, high), the operands
// of bf16 products.
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

/// Interleaves 32 items of each row to 32 words (low, high) and stores them; the address is 64-byte aligned, and the
/// second 16 words begin at `half` words.
HWY_INLINE void store_interleaved(__m512i low, __m512i high, void* words, std::int64_t half = 16) {
  const __m512i first = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37,
                                         5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
  auto* const to = static_cast<std::uint32_t*>(words);
  _mm512_store_si512(to, _mm512_permutex2var_epi16(low, first, high));
  _mm512_store_si512(to + half, _mm512_permutex2var_epi16(low, _mm512_add_epi16(first, _mm512_set1_epi16(16)), high));
}

}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // HWY_AVX3
#endif  // include guard
