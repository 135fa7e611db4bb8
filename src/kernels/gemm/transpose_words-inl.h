// src/kernels/gemm/transpose_words-inl.h: transposes words of 4 bytes of 16 rows in registers of AVX-512.
#if defined(ATTN_GEMM_TRANSPOSE_WORDS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_GEMM_TRANSPOSE_WORDS_INL_H
#undef ATTN_GEMM_TRANSPOSE_WORDS_INL_H
#else
#define ATTN_GEMM_TRANSPOSE_WORDS_INL_H
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET == HWY_AVX3
/// Transposes 16 rows x 4 words of 4 bytes: 16 loads of 16 bytes, three quarters of them masked, and 8 shuffles within
/// 128 bits.
HWY_INLINE void transpose_four_words(const char* rows, std::int64_t row_bytes, __m512 (&out)[4]) {
  __m512 v[4];
  _Pragma("GCC unroll 4") for (int j = 0; j < 4; ++j) {
    const auto quarter = [&](int row)
                             HWY_ATTR { return _mm_loadu_ps(reinterpret_cast<const float*>(rows + row * row_bytes)); };
    v[j] = _mm512_castps128_ps512(quarter(j));
    v[j] = _mm512_mask_broadcast_f32x4(v[j], 0x00f0, quarter(j + 4));
    v[j] = _mm512_mask_broadcast_f32x4(v[j], 0x0f00, quarter(j + 8));
    v[j] = _mm512_mask_broadcast_f32x4(v[j], 0xf000, quarter(j + 12));
  }
  const __m512d a = _mm512_castps_pd(_mm512_unpacklo_ps(v[0], v[1])),
                b = _mm512_castps_pd(_mm512_unpackhi_ps(v[0], v[1]));
  const __m512d e = _mm512_castps_pd(_mm512_unpacklo_ps(v[2], v[3])),
                f = _mm512_castps_pd(_mm512_unpackhi_ps(v[2], v[3]));
  out[0] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, e));
  out[1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, e));
  out[2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, f));
  out[3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, f));
}

/// Transposes 16 rows x 16 words: 64 loads and 32 shuffles, instead of 16 loads and 64 shuffles.
HWY_INLINE void transpose_words(const char* rows, std::int64_t row_bytes, __m512 (&out)[16]) {
  _Pragma("GCC unroll 4") for (int c = 0; c < 4; ++c) {
    __m512 four[4];
    transpose_four_words(rows + 16 * c, row_bytes, four);
    _Pragma("GCC unroll 4") for (int i = 0; i < 4; ++i) out[4 * c + i] = four[i];
  }
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
