// src/kernels/attention/bf16_few_rows-inl.h: few rows of bf16 (decoding): few_scores-inl.h and few_rows-inl.h by pairs, K and V read as they lie.
#if defined(ATTN_BF16_FEW_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_BF16_FEW_ROWS_INL_H
#undef ATTN_BF16_FEW_ROWS_INL_H
#else
#define ATTN_BF16_FEW_ROWS_INL_H
#endif

#include "kernels/attention/bf16_tiles-inl.h"
#include "kernels/attention/few_scores-inl.h"

#if HWY_TARGET == HWY_AVX3
ATTN_BEFORE_BF16_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {

/// FewScoresTile for words of two columns; q [pairs][few_rows].
struct Bf16FewScoresTile {
  std::int64_t pairs;
  float scale;
  const std::uint32_t* q;

  template <int ROWS, int VECTORS>
  HWY_NOINLINE void operator()(const float* const* keys, std::int64_t stride, int row, float* scores) const {
    const Tag<float> d;
    constexpr int side = turned_columns<float>;
    __m512 sum[ROWS][VECTORS];
    ATTN_UNROLL for (int r = 0; r < ROWS; ++r) ATTN_UNROLL for (int v = 0; v < VECTORS; ++v) sum[r][v] = _mm512_setzero_ps();
    const std::uint32_t* of_rows = q + row;
    std::int64_t c = 0;
    for (; c + side <= pairs; c += side, of_rows += side * few_rows) {
      Vector<float> column[VECTORS][side];
      ATTN_UNROLL for (int v = 0; v < VECTORS; ++v) load_turned(d, keys[v] + c, stride, column[v]);
      ATTN_UNROLL for (int i = 0; i < side; ++i)
        ATTN_UNROLL for (int r = 0; r < ROWS; ++r) {
          const __m512i x = _mm512_set1_epi32(static_cast<int>(of_rows[i * few_rows + r]));
          ATTN_UNROLL for (int v = 0; v < VECTORS; ++v) sum[r][v] = dot_pair(sum[r][v], _mm512_castps_si512(column[v][i].raw), x);
        }
    }
    for (; c < pairs; ++c, of_rows += few_rows)
      ATTN_UNROLL for (int v = 0; v < VECTORS; ++v) {
        alignas(64) std::uint32_t column[16];
        for (int i = 0; i < 16; ++i) std::memcpy(column + i, keys[v] + i * stride + c, 4);
        ATTN_UNROLL for (int r = 0; r < ROWS; ++r)
          sum[r][v] = dot_pair(sum[r][v], _mm512_load_si512(column), _mm512_set1_epi32(static_cast<int>(of_rows[r])));
      }
    const __m512 factor = _mm512_set1_ps(scale);
    ATTN_UNROLL for (int r = 0; r < ROWS; ++r)
      ATTN_UNROLL for (int v = 0; v < VECTORS; ++v) _mm512_store_ps(scores + (row + r) * few_keys<float> + v * 16, _mm512_mul_ps(sum[r][v], factor));
  }
};

/// FewRowsTile for pairs of keys: rows of V, an even number of them; weights p[pair][bf16_rows].
struct Bf16FewRowsTile {
  const std::uint16_t* const* v_rows;
  std::int64_t value_dim;
  int pairs;
  const std::uint32_t* p;
  const float* alpha;
  std::int64_t stride;
  bool first;

  template <int ROWS, int VECTORS>
  HWY_NOINLINE void operator()(int row, std::int64_t column, float* o) const {
    __m512 sum[ROWS][VECTORS];
    ATTN_UNROLL for (int r = 0; r < ROWS; ++r) ATTN_UNROLL for (int x = 0; x < VECTORS; ++x) sum[r][x] = _mm512_setzero_ps();
    // only the last vector may reach past the row
    const std::int64_t left = value_dim - column - (VECTORS - 1) * 16;
    const __mmask16 last = left >= 16 ? 0xFFFF : static_cast<__mmask16>((1u << left) - 1);
    const std::uint32_t* weights = p + row;
    for (int pair = 0; pair < pairs; ++pair, weights += bf16_rows) {
      const std::uint16_t *low = v_rows[2 * pair] + column, *high = v_rows[2 * pair + 1] + column;
      __m512i values[VECTORS];
      ATTN_UNROLL for (int x = 0; x < VECTORS; ++x) values[x] = words_of_rows(low + x * 16, high + x * 16, x == VECTORS - 1 ? last : 0xFFFF);
      ATTN_UNROLL for (int r = 0; r < ROWS; ++r) {
        const __m512i weight = _mm512_set1_epi32(static_cast<int>(weights[r]));
        ATTN_UNROLL for (int x = 0; x < VECTORS; ++x) sum[r][x] = dot_pair(sum[r][x], values[x], weight);
      }
    }
    ATTN_UNROLL for (int r = 0; r < ROWS; ++r) {
      float* const place = o + r * stride;
      const __m512 factor = _mm512_set1_ps(alpha[row + r]);
      ATTN_UNROLL for (int x = 0; x < VECTORS; ++x)
        _mm512_store_ps(place + x * 16, first ? sum[r][x] : _mm512_fmadd_ps(_mm512_load_ps(place + x * 16), factor, sum[r][x]));
    }
  }
};

}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
#endif
