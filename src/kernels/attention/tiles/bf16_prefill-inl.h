// src/kernels/attention/tiles/bf16_prefill-inl.h: computes QK^T and PV of a query tile in bf16: pairs as 32-bit words,
// one vdpbf16ps per pair.
#if defined(ATTN_BF16_PREFILL_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_BF16_PREFILL_INL_H
#undef ATTN_BF16_PREFILL_INL_H
#else
#define ATTN_BF16_PREFILL_INL_H
#endif

#include "kernels/x86/bf16_target.h"
#include "kernels/attention/tiles/prefill_pv-inl.h"
#include "kernels/simd/interleave-inl.h"

#if HWY_TARGET == HWY_AVX3
#include <immintrin.h>

ATTN_BEFORE_BF16_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {

inline constexpr int bf16_rows = 64;  // one row per lane, four vectors

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

/// What the scores of a block are made of: queries as pairs [pairs][bf16_rows], the block's keys; where they go.
struct Bf16Scores {
  const std::uint32_t* q;
  const std::uint32_t* const* k;
  std::int64_t pairs;
  float scale;
  float *s, *alpha;
  TilePrefetch* ahead;     // what the tiles prefetch, or null
  const float* key_scale;  // of int8 keys, or null
};

/// KEYS x VECTORS scores from key `key` and vector `vector` on: a chain over the pairs of d, times the key's scale and
/// the call's, -inf where `visible` (the block's words; null: all) has no bit. The lanes' maximum goes through `alpha`.
template <int KEYS, int VECTORS>
HWY_INLINE void bf16_score_tile(const Bf16Scores& scores, int key, int vector, const Word* visible,
                                const TilePrefetch* ahead = nullptr) {
  const std::uint32_t* HWY_RESTRICT const q = scores.q + vector * 16;
  float *HWY_RESTRICT const s = scores.s + key * bf16_rows + vector * 16,
                            *HWY_RESTRICT const alpha = scores.alpha + vector * 16;
  const std::int64_t pairs = scores.pairs;
  __m512 sum[KEYS][VECTORS];
  ATTN_UNROLL_FOR (int r = 0; r < KEYS; ++r)
    ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) sum[r][v] = _mm512_setzero_ps();
  const std::uint32_t* row[KEYS];
  ATTN_UNROLL_FOR (int r = 0; r < KEYS; ++r) row[r] = scores.k[key + r];
  const auto add = [&](std::int64_t c) __attribute__((always_inline)) ATTN_BF16_ATTR {
    __m512i x[VECTORS];
    ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) x[v] = _mm512_load_si512(q + c * bf16_rows + v * 16);
    ATTN_UNROLL_FOR (int r = 0; r < KEYS; ++r) {
      std::uint32_t pair;
      std::memcpy(&pair, row[r] + c, 4);  // rows of bf16 are aligned to two bytes
      const __m512i word = _mm512_set1_epi32(static_cast<int>(pair));
      ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) sum[r][v] = dot_pair(sum[r][v], word, x[v]);
    }
  };
  std::int64_t c = 0;
  if (VECTORS == 4 && ahead && ahead->step != 0) {
    const auto step = static_cast<Address>(ahead->step);
    for (Address at = ahead->at; c < pairs; ++c, at += step) {
      prefetch_l2(at);
      add(c);
    }
  }
  _Pragma("GCC unroll 2") for (; c < pairs; ++c) add(c);
  const __m512 factor = _mm512_set1_ps(scores.scale);
  if (scores.key_scale)
    ATTN_UNROLL_FOR (int r = 0; r < KEYS; ++r) {
      const __m512 of_key = _mm512_set1_ps(scores.key_scale[key + r]);
      ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) sum[r][v] = _mm512_mul_ps(sum[r][v], of_key);
    }
  ATTN_UNROLL_FOR (int r = 0; r < KEYS; ++r)
    ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) sum[r][v] = _mm512_mul_ps(sum[r][v], factor);
  if (visible)
    ATTN_UNROLL_FOR (int r = 0; r < KEYS; ++r)
      ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v)
        sum[r][v] = _mm512_mask_blend_ps(static_cast<__mmask16>(visible[key + r] >> ((vector + v) * 16)),
                                         _mm512_set1_ps(-std::numeric_limits<float>::infinity()), sum[r][v]);
  ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) {
    __m512 largest = _mm512_load_ps(alpha + v * 16);
    ATTN_UNROLL_FOR (int r = 0; r < KEYS; ++r) {
      largest = _mm512_max_ps(largest, sum[r][v]);
      _mm512_store_ps(s + r * bf16_rows + v * 16, sum[r][v]);
    }
    _mm512_store_ps(alpha + v * 16, largest);
  }
}

/// Computes the range's keys against VECTORS vectors of queries from `vector` on.
template <int VECTORS>
HWY_NOINLINE void bf16_score_columns(const Bf16Scores& scores, const ScoreRange& range, int vector) {
  constexpr int most = tile_keys(VECTORS, registers);
  const Word* const visible = range.of_vector(vector);
  int r = range.key;
  for (; r + most <= range.end; r += most) {
    if (scores.ahead) scores.ahead->template spread<VECTORS>(scores.pairs);
    bf16_score_tile<most, VECTORS>(scores, r, vector, visible, scores.ahead);
  }
  for (; r + 4 <= range.end; r += 4) bf16_score_tile<4, VECTORS>(scores, r, vector, visible);
  for (; r < range.end; ++r) bf16_score_tile<1, VECTORS>(scores, r, vector, visible);
}

/// Computes COLUMNS value columns x VECTORS: a chain over pairs of keys, accumulated as Accumulate says.
template <int COLUMNS, int VECTORS, Accumulate ACCUMULATE>
HWY_INLINE void bf16_output_tile(const std::uint32_t* HWY_RESTRICT p, const std::uint32_t* HWY_RESTRICT v_words,
                                 std::int64_t v_stride, int pairs, float* HWY_RESTRICT o,
                                 const float* HWY_RESTRICT alpha, const TilePrefetch* ahead = nullptr) {
  __m512 sum[COLUMNS][VECTORS];
  ATTN_UNROLL_FOR (int c = 0; c < COLUMNS; ++c)
    ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) sum[c][v] = _mm512_setzero_ps();
  const auto add = [&](int j) __attribute__((always_inline)) ATTN_BF16_ATTR {
    __m512i weight[VECTORS];
    ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) weight[v] = _mm512_load_si512(p + j * bf16_rows + v * 16);
    const std::uint32_t* value = v_words + j * v_stride;
    ATTN_UNROLL_FOR (int c = 0; c < COLUMNS; ++c) {
      const __m512i x = _mm512_set1_epi32(static_cast<int>(value[c]));
      ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) sum[c][v] = dot_pair(sum[c][v], x, weight[v]);
    }
  };
  int j = 0;
  if (VECTORS == 4 && ahead && ahead->step != 0) {
    const auto step = static_cast<Address>(ahead->step);
    for (Address at = ahead->at; j < pairs; ++j, at += step) {
      prefetch_l2(at);
      add(j);
    }
  }
  _Pragma("GCC unroll 2") for (; j < pairs; ++j) add(j);
  ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) {
    const __m512 a = ACCUMULATE == Accumulate::rescale ? _mm512_load_ps(alpha + v * 16) : _mm512_setzero_ps();
    ATTN_UNROLL_FOR (int c = 0; c < COLUMNS; ++c) {
      float* place = o + c * bf16_rows + v * 16;
      _mm512_store_ps(
          place, ACCUMULATE == Accumulate::rescale ? _mm512_fmadd_ps(_mm512_load_ps(place), a, sum[c][v]) : sum[c][v]);
    }
  }
}

template <int VECTORS, Accumulate ACCUMULATE>
HWY_NOINLINE void bf16_output_columns(const std::uint32_t* p, const std::uint32_t* v_words, std::int64_t v_stride,
                                      int pairs, std::int64_t value_dim, float* o, const float* alpha,
                                      TilePrefetch* ahead) {
  constexpr int most = tile_keys(VECTORS, registers);
  std::int64_t c = 0;
  for (; c + most <= value_dim; c += most) {
    if (ahead) ahead->template spread<VECTORS>(pairs);
    bf16_output_tile<most, VECTORS, ACCUMULATE>(p, v_words + c, v_stride, pairs, o + c * bf16_rows, alpha, ahead);
  }
  for (; c + 4 <= value_dim; c += 4)
    bf16_output_tile<4, VECTORS, ACCUMULATE>(p, v_words + c, v_stride, pairs, o + c * bf16_rows, alpha);
  for (; c + 2 <= value_dim; c += 2)
    bf16_output_tile<2, VECTORS, ACCUMULATE>(p, v_words + c, v_stride, pairs, o + c * bf16_rows, alpha);
  for (; c < value_dim; ++c)
    bf16_output_tile<1, VECTORS, ACCUMULATE>(p, v_words + c, v_stride, pairs, o + c * bf16_rows, alpha);
}

}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
#endif
