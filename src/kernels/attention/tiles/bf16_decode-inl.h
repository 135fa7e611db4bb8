// src/kernels/attention/tiles/bf16_decode-inl.h: decode in bf16: scales and masks scores, computes their softmax, and
// loads V by pairs of keys. K needs no loader of its own: its words are pairs of columns (SameFormat).
#if defined(ATTN_BF16_DECODE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_BF16_DECODE_INL_H
#undef ATTN_BF16_DECODE_INL_H
#else
#define ATTN_BF16_DECODE_INL_H
#endif

#include "kernels/attention/tiles/bf16_dot_instruction-inl.h"
#include "kernels/attention/softmax/bf16_softmax-inl.h"
#include "kernels/attention/tiles/decode_qk-inl.h"
#include "kernels/attention/softmax/decode_softmax-inl.h"

#if HWY_TARGET == HWY_AVX3
ATTN_BEFORE_BF16_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {

/// Completes the scores of keys [begin, end): multiplies the sums of products by the keys' scales (`of_keys`: one
/// pointer per 16 keys, or null) and by `scale`, and raises `maximum`. Scores are -inf where a query does not see the
/// key (`visible` null: all keys are seen), and for the other keys of the units of 32 at both ends. `ahead`: what is
/// prefetched meanwhile, or null.
HWY_NOINLINE inline void finish_decode_scores(const DecodeScoreRows<float>& scores, float scale, float* maximum,
                                              const float* const* of_keys, int begin, int end, int queries,
                                              const Word* visible, StreamPrefetcher* ahead) {
  const __m512 factor = _mm512_set1_ps(scale), masked = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  for (int r = 0; r < queries; ++r) {
    float* const s = scores.s + r * scores.stride;
    __m512 largest = masked;
    for (int i = begin / 32 * 32; i < (end + 31) / 32 * 32; i += 16) {
      if (ahead) ahead->fetch<2>();
      __mmask16 seen = first_lanes(end - i) & ~first_lanes(begin - i);
      if (visible) {
        const __m512i bit = _mm512_set1_epi64(std::int64_t{1} << r);
        seen &= static_cast<__mmask16>(_mm512_test_epi64_mask(_mm512_load_si512(visible + i), bit) |
                                       _mm512_test_epi64_mask(_mm512_load_si512(visible + i + 8), bit) << 8);
      }
      __m512 x = _mm512_load_ps(s + i);
      if (of_keys && i < end) x = _mm512_mul_ps(x, _mm512_loadu_ps(of_keys[i / 16]));
      x = _mm512_mask_mul_ps(masked, seen, x, factor);
      largest = _mm512_max_ps(largest, x);
      _mm512_store_ps(s + i, x);
    }
    maximum[r] = std::max(maximum[r], _mm512_reduce_max_ps(largest));
  }
}

/// Rounds adjacent weights to bf16 and stores them as pairs.
HWY_INLINE void store_pairs(__m512 low, __m512 high, std::uint32_t* to) {
  _mm512_store_si512(to, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
}

/// Computes the weights of `rows` rows, rounds them to bf16 and stores pairs of them: as words [row][128], and
/// transposed to p [pair][max_decode_rows], which is summed later. `keep`: the unrounded weights replace the scores.
HWY_NOINLINE inline void decode_softmax(const QueryTileScratch<float>& scratch,
                                        const DecodeScores<float, bf16_kv_block>& block, int rows, int begin, int end,
                                        std::uint32_t* words, StreamPrefetcher& ahead, bool keep) {
  constexpr int keys = bf16_kv_block, pairs = keys / 2;
  raise_maximum(scratch, 1);
  for (int r = 0; r < rows; ++r) {
    float* const s = block.s + r * keys;
    if (end % 2 != 0) s[end] = -std::numeric_limits<float>::infinity();  // an odd end is paired with 0
    const __m512 reference = _mm512_set1_ps(scratch.reference[r]);
    for (int i = begin / 32 * 32; i < end; i += 32) {
      ahead.fetch<8>();
      const __m512 low = bf16_weight(_mm512_load_ps(s + i), reference),
                   high = bf16_weight(_mm512_load_ps(s + i + 16), reference);
      store_pairs(low, high, words + r * pairs + i / 2);
      if (!keep) continue;
      _mm512_store_ps(s + i, low);
      _mm512_store_ps(s + i + 16, high);
    }
  }
  const int first = begin / 2, last = (end + 1) / 2;
  transpose(reinterpret_cast<const float*>(words) + first, std::int64_t{pairs}, rows, last - first,
            block.p + first * max_decode_rows, std::int64_t{max_decode_rows});
}

/// Multiplies the unrounded weights of the keys [begin, end), which decode_softmax kept, by the scales of their values
/// (one pointer per 16 keys), rounds them and stores pairs of them as words [row][128]; 0 beyond the end of the keys,
/// up to the end of a unit of 32.
HWY_NOINLINE inline void scale_decode_weights(const DecodeScores<float, bf16_kv_block>& block, int rows, int begin,
                                              int end, const float* const* scales, std::uint32_t* words) {
  for (int i = begin / 32 * 32; i < end; i += 32) {
    const __m512 low = _mm512_maskz_loadu_ps(first_lanes(end - i), scales[i / 16]);
    const __m512 high = _mm512_maskz_loadu_ps(first_lanes(end - i - 16), scales[(i + 16 < end ? i + 16 : i) / 16]);
    for (int r = 0; r < rows; ++r) {
      const float* const s = block.s + r * bf16_kv_block + i;
      store_pairs(_mm512_mul_ps(_mm512_load_ps(s), low), _mm512_mul_ps(_mm512_load_ps(s + 16), high),
                  words + r * (bf16_kv_block / 2) + i / 2);
    }
  }
}

}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {

/// Sums the rounded weights of decode rows: a chain over the pairs, rows in the lanes.
struct DecodeWeightSum {
  // [pair][max_decode_rows], from the part's first pair on; null: the sum is computed elsewhere
  const std::uint32_t* p = nullptr;
  float* sum = nullptr;
  std::int64_t step = max_decode_rows;
  __m256 chain = _mm256_setzero_ps();

  /// Returns the sum for one register tile. Only the first tile sums the weights; the others add zeros, because a loop
  /// without the sum would be a second copy of the code.
  HWY_INLINE DecodeWeightSum of_tile(bool first, bool begins) const {
    alignas(32) static constexpr std::uint32_t zeros[max_decode_rows] = {};
    DecodeWeightSum own = first && p != nullptr ? *this : DecodeWeightSum{zeros, nullptr, 0};
    if (own.sum != nullptr && !begins) own.chain = _mm256_load_ps(sum);
    return own;
  }
  // adds the next pair of weights times (1, 1)
  HWY_INLINE void add() {
    const __m256i pair = _mm256_load_si256(reinterpret_cast<const __m256i*>(p)), ones = _mm256_set1_epi32(0x3F803F80);
    asm("vdpbf16ps %2, %1, %0" : "+v"(chain) : "v"(pair), "v"(ones));
    p += step;
  }
  HWY_INLINE void end() const {
    if (sum != nullptr) _mm256_store_ps(sum, chain);
  }
  void make(int pairs) {
    for (int n = 0; n < pairs; ++n) add();
    end();
  }
};

/// Weights of pairs of keys, with the strides between pairs and between rows.
struct DecodeWeightPairs {
  const std::uint32_t* p;
  std::int64_t stride, row_stride;
  DecodeWeightPairs from(int pair) const { return {p + pair * stride, stride, row_stride}; }
};

/// The loader of bf16 values by pairs of keys: `rows` has an even number of rows of V. The DecodePvTile that uses it
/// also sums the weights, because that chain alone would be bound by latency.
struct PairValues {
  using Compute = float;
  static constexpr bool eight_rows = true;
  template <int VECTORS>
  static constexpr int lines = VECTORS > 1 ? VECTORS : 0;
  const std::uint16_t* const* rows;
  std::int64_t value_dim;
  int pairs;
  StreamPrefetcher* ahead;

  template <int ROWS, int VECTORS, int TIMES, class F>
  HWY_INLINE void each(int, std::int64_t column, F&& visit) const {
    // only the last vector may be incomplete
    const __mmask16 last = first_lanes(value_dim - column - (VECTORS - 1) * 16);
    const __mmask32 last_two = 0xFFFF | static_cast<__mmask32>(last) << 16;
    for (int pair = 0; pair < pairs; ++pair) {
      const std::uint16_t *low = rows[2 * pair] + column, *high = rows[2 * pair + 1] + column;
      const auto next = take<lines<VECTORS>, TIMES>(*ahead, low);
      Vector<float> values[VECTORS];
      if constexpr (VECTORS % 2 == 0) {
        ATTN_UNROLL_FOR (int x = 0; x < VECTORS; x += 2) {
          const __mmask32 columns = x + 2 == VECTORS ? last_two : 0xFFFFFFFF;
          const __m512i a = _mm512_maskz_loadu_epi16(columns, low + x * 16),
                        b = _mm512_maskz_loadu_epi16(columns, high + x * 16);
          values[x].raw = _mm512_castsi512_ps(_mm512_unpacklo_epi16(a, b));
          values[x + 1].raw = _mm512_castsi512_ps(_mm512_unpackhi_epi16(a, b));
        }
      } else {
        ATTN_UNROLL_FOR (int x = 0; x < VECTORS; ++x)
          values[x].raw =
              _mm512_castsi512_ps(words_of_rows(low + x * 16, high + x * 16, x == VECTORS - 1 ? last : 0xFFFF));
      }
      visit(values, [&](int r) HWY_ATTR { prefetch_share<lines<VECTORS>>(next, r, ROWS); });
    }
  }
  template <int VECTORS, class Tile>
  HWY_INLINE void prefetching(const Tile& tile) const {
    by_distance<lines<VECTORS>>(*ahead, tile);
  }
  template <int VECTORS>
  static HWY_INLINE void order(Vector<float> (&sum)[VECTORS]) {
    if constexpr (VECTORS % 2 == 0)
      ATTN_UNROLL_FOR (int x = 0; x < VECTORS; x += 2) in_order(sum[x].raw, sum[x + 1].raw);
  }
};

}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
#endif
