// src/kernels/attention/tiles/bf16_decode-inl.h: computes QK^T and PV of decode rows in bf16, by pairs of columns or
// keys.
#if defined(ATTN_BF16_DECODE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_BF16_DECODE_INL_H
#undef ATTN_BF16_DECODE_INL_H
#else
#define ATTN_BF16_DECODE_INL_H
#endif

#include "kernels/attention/tiles/bf16_prefill-inl.h"
#include "kernels/attention/softmax/bf16_softmax-inl.h"
#include "kernels/attention/tiles/decode_qk-inl.h"
#include "kernels/attention/softmax/decode_softmax-inl.h"

#if HWY_TARGET == HWY_AVX3
ATTN_BEFORE_BF16_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {

/// DecodeQkTile for words of two columns; q [pairs][max_decode_rows].
struct Bf16DecodeQkTile {
  static constexpr bool wide = true;
  std::int64_t pairs;
  float scale;
  const std::uint32_t* q;
  StreamPrefetcher* ahead;  // of the keys
  const float* key_scale;   // of the first of them on, or null

  template <int ROWS, int VECTORS>
  HWY_NOINLINE void operator()(const float* const* keys, std::int64_t stride, int row, float* scores,
                               std::int64_t to_stride) const {
    constexpr int lines = VECTORS > 1 ? 4 * VECTORS : 0;
    by_distance<lines>(*ahead, [&]<int TIMES>() ATTN_BF16_ATTR {
      tile<ROWS, VECTORS, lines, TIMES>(keys, stride, row, scores, to_stride);
    });
  }

  template <int ROWS, int VECTORS, int LINES, int TIMES>
  HWY_NOINLINE void tile(const float* const* keys, std::int64_t stride, int row, float* scores,
                         std::int64_t to_stride) const {
    const Tag<float> d;
    constexpr int side = transposed_columns<float>;
    __m512 sum[ROWS][VECTORS];
    ATTN_UNROLL_FOR (int r = 0; r < ROWS; ++r)
      ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) sum[r][v] = _mm512_setzero_ps();
    const std::uint32_t* of_rows = q + row;
    RowsInStep<Tag<float>> first(keys[0], stride), second(keys[VECTORS - 1], stride);
    std::int64_t c = 0;
    for (; c + side <= pairs; c += side, of_rows += side * max_decode_rows) {
      const auto next = take<LINES, TIMES>(*ahead, keys[0]);
      Vector<float> column[VECTORS][side];
      first.next(d, column[0]);
      if constexpr (VECTORS == 2) second.next(d, column[1]);
      ATTN_UNROLL_FOR (int i = 0; i < side; ++i)
        ATTN_UNROLL_FOR (int r = 0; r < ROWS; ++r) {
          const __m512i x = _mm512_set1_epi32(static_cast<int>(of_rows[i * max_decode_rows + r]));
          ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v)
            sum[r][v] = dot_pair(sum[r][v], _mm512_castps_si512(column[v][i].raw), x);
          prefetch_share<LINES>(next, i * ROWS + r, side * ROWS);
        }
    }
    for (; c < pairs; ++c, of_rows += max_decode_rows)
      ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) {
        alignas(64) std::uint32_t column[16];
        for (int i = 0; i < 16; ++i) std::memcpy(column + i, keys[v] + i * stride + c, 4);
        ATTN_UNROLL_FOR (int r = 0; r < ROWS; ++r)
          sum[r][v] = dot_pair(sum[r][v], _mm512_load_si512(column), _mm512_set1_epi32(static_cast<int>(of_rows[r])));
      }
    if (key_scale)
      ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) {
        const __m512 of_keys = _mm512_loadu_ps(key_scale + v * 16);
        ATTN_UNROLL_FOR (int r = 0; r < ROWS; ++r) sum[r][v] = _mm512_mul_ps(sum[r][v], of_keys);
      }
    const __m512 factor = _mm512_set1_ps(scale);
    ATTN_UNROLL_FOR (int r = 0; r < ROWS; ++r)
      ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v)
        _mm512_storeu_ps(scores + (row + r) * to_stride + v * 16, _mm512_mul_ps(sum[r][v], factor));
  }
};

/// Sums of products of the keys [begin, end) times the scales (of keys, of each 16 side by side; or null), -inf where a
/// query does not see (null: all do) and around them as far as units of 32 keys reach; their maxima. `ahead`: what is
/// prefetched meanwhile, or null.
HWY_NOINLINE inline void finish_decode_scores(const Bf16Scores& scores, const float* const* of_keys, int begin, int end,
                                              int queries, const Word* visible, StreamPrefetcher* ahead) {
  const __m512 factor = _mm512_set1_ps(scores.scale), masked = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  const int first = begin / 32 * 32, all = visible ? first : (begin + 15) / 16 * 16,
            all_end = visible ? first : std::max(all, end / 16 * 16);
  for (int r = 0; r < queries; ++r) {
    float* const s = scores.s + r * bf16_kv_block;
    __m512 largest = masked;
    const auto finish = [&](int i, __mmask16 seen) ATTN_BF16_ATTR {
      if (ahead) ahead->fetch<2>();
      __m512 x = _mm512_load_ps(s + i);
      if (of_keys && i < end) x = _mm512_mul_ps(x, _mm512_loadu_ps(of_keys[i / 16]));
      x = _mm512_mask_mul_ps(masked, seen, x, factor);
      largest = _mm512_max_ps(largest, x);
      _mm512_store_ps(s + i, x);
    };
    const auto finish_some = [&](int i, int until) ATTN_BF16_ATTR {
      for (; i < until; i += 16) {
        __mmask16 seen = first_lanes(end - i) & ~first_lanes(begin - i);
        if (visible) {
          const __m512i bit = _mm512_set1_epi64(std::int64_t{1} << r);
          seen &= static_cast<__mmask16>(_mm512_test_epi64_mask(_mm512_load_si512(visible + i), bit) |
                                         _mm512_test_epi64_mask(_mm512_load_si512(visible + i + 8), bit) << 8);
        }
        finish(i, seen);
      }
    };
    finish_some(first, all);
    for (int i = all; i < all_end; i += 16) finish(i, 0xFFFF);
    finish_some(all_end, (end + 31) / 32 * 32);
    scores.alpha[r] = std::max(scores.alpha[r], _mm512_reduce_max_ps(largest));
  }
}

/// Rounds adjacent weights to bf16 and stores them as pairs.
HWY_INLINE void store_pairs(__m512 low, __m512 high, std::uint32_t* to) {
  _mm512_store_si512(to, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
}

/// decode_softmax: weights of `rows` rows rounded to bf16, pairs of them as words [row][128] and transposed to p
/// [pair][max_decode_rows], of which their sum is to be made. `keep`: they stay where the scores were, not rounded.
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

/// Such weights of the keys [begin, end) times the scales of their values (of each 16 side by side): pairs of them as
/// words [row][128], 0 beyond the end as far as a unit of 32 keys reaches.
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

/// The sum of such weights: a chain over the pairs, rows in the lanes.
struct DecodeWeightSum {
  const std::uint32_t* p = nullptr;  // [pair][max_decode_rows], of the part's first pair; null: it is made elsewhere
  float* sum = nullptr;
  std::int64_t step = max_decode_rows;
  __m256 chain = _mm256_setzero_ps();

  /// For a register tile. Tiles other than the first add zeros: a loop without the sum would be a second copy of the
  /// code.
  HWY_INLINE DecodeWeightSum of_tile(bool first, bool begins) const {
    alignas(32) static constexpr std::uint32_t zeros[max_decode_rows] = {};
    DecodeWeightSum own = first && p != nullptr ? *this : DecodeWeightSum{zeros, nullptr, 0};
    if (own.sum != nullptr && !begins) own.chain = _mm256_load_ps(sum);
    return own;
  }
  HWY_INLINE void add() {  // times (1, 1)
    const __m256i pair = _mm256_load_si256(reinterpret_cast<const __m256i*>(p)), ones = _mm256_set1_epi32(0x3F803F80);
    chain = _mm256_dpbf16_ps(chain, reinterpret_cast<__m256bh>(pair), reinterpret_cast<__m256bh>(ones));
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

/// Weights of pairs: the stride between pairs and between rows.
struct DecodeWeightPairs {
  const std::uint32_t* p;
  std::int64_t stride, row_stride;
  DecodeWeightPairs from(int pair) const { return {p + pair * stride, stride, row_stride}; }
};

/// DecodePvTile for pairs of keys: rows of V, an even number of them. The first tile also sums the weights, a chain
/// that is bound by latency.
struct Bf16DecodePvTile {
  const std::uint16_t* const* v_rows;
  std::int64_t value_dim;
  int pairs;
  DecodeWeightPairs p;
  DecodeWeightSum weight_sum;
  PvEpilogue<float> epilogue;

  template <int ROWS, int VECTORS>
  HWY_NOINLINE void operator()(int row, std::int64_t column, float* o) const {
    constexpr int lines = VECTORS > 1 ? VECTORS : 0;
    by_distance<lines>(*epilogue.ahead,
                       [&]<int TIMES>() ATTN_BF16_ATTR { tile<ROWS, VECTORS, lines, TIMES>(row, column, o); });
  }

  template <int ROWS, int VECTORS, int LINES, int TIMES>
  HWY_NOINLINE void tile(int row, std::int64_t column, float* o) const {
    constexpr bool by_twos = VECTORS % 2 == 0;
    Vector<float> sum[ROWS][VECTORS];
    epilogue.start(o, sum);
    // only the last vector may reach past the row
    const __mmask16 last = first_lanes(value_dim - column - (VECTORS - 1) * 16);
    const std::uint32_t* weights = p.p + row * p.row_stride;
    DecodeWeightSum adds = weight_sum.of_tile(row == 0 && column == 0, epilogue.begins);
    for (int pair = 0; pair < pairs; ++pair, weights += p.stride) {
      adds.add();
      const std::uint16_t *low = v_rows[2 * pair] + column, *high = v_rows[2 * pair + 1] + column;
      const auto next = take<LINES, TIMES>(*epilogue.ahead, low);
      __m512i values[VECTORS];
      if constexpr (by_twos) {
        ATTN_UNROLL_FOR (int x = 0; x < VECTORS; x += 2) {
          const __mmask32 columns = x + 2 == VECTORS ? 0xFFFF | static_cast<__mmask32>(last) << 16 : 0xFFFFFFFF;
          const __m512i a = _mm512_maskz_loadu_epi16(columns, low + x * 16),
                        b = _mm512_maskz_loadu_epi16(columns, high + x * 16);
          values[x] = _mm512_unpacklo_epi16(a, b);
          values[x + 1] = _mm512_unpackhi_epi16(a, b);
        }
      } else {
        ATTN_UNROLL_FOR (int x = 0; x < VECTORS; ++x)
          values[x] = words_of_rows(low + x * 16, high + x * 16, x == VECTORS - 1 ? last : 0xFFFF);
      }
      ATTN_UNROLL_FOR (int r = 0; r < ROWS; ++r) {
        const __m512i weight = _mm512_set1_epi32(static_cast<int>(weights[r * p.row_stride]));
        ATTN_UNROLL_FOR (int x = 0; x < VECTORS; ++x) sum[r][x].raw = dot_pair(sum[r][x].raw, values[x], weight);
        prefetch_share<LINES>(next, r, ROWS);
      }
    }
    if constexpr (by_twos)
      if (epilogue.ends)
        ATTN_UNROLL_FOR (int r = 0; r < ROWS; ++r)
          ATTN_UNROLL_FOR (int x = 0; x < VECTORS; x += 2) in_order(sum[r][x].raw, sum[r][x + 1].raw);
    adds.end();
    epilogue.finish(row, o, sum);
  }
};

}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
#endif
