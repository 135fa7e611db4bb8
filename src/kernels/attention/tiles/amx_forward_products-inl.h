// src/kernels/attention/tiles/amx_forward_products-inl.h: computes QK^T and PV in bf16 by AMX; a tile register holds
// the sums of 16 keys (or value columns) x 16 queries.
//
//        32 columns of K         16 queries               32 keys (V transposed)       16 queries
//       +---------------+       +----------+             +---------------+        +----------+
//  16   |   in place    |   x   | Q, pairs |   = S^T     16 columns of V |   x    | P, pairs |   = O^T of the block
//  keys +---------------+       +----------+             +---------------+        +----------+
#if defined(ATTN_AMX_FORWARD_PRODUCTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_AMX_FORWARD_PRODUCTS_INL_H
#undef ATTN_AMX_FORWARD_PRODUCTS_INL_H
#else
#define ATTN_AMX_FORWARD_PRODUCTS_INL_H
#endif

#include "kernels/x86/amx_tile_product.h"
#include "kernels/attention/tiles/bf16_dot_instruction-inl.h"
#include "kernels/prefetch/decode_kv_prefetch.h"
#include "kernels/simd/transpose-inl.h"

#include <algorithm>
#include <limits>

#if HWY_TARGET == HWY_AVX3
ATTN_BEFORE_BF16_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {

inline constexpr std::int64_t row_of_words = 4 * bf16_rows;  // bytes between rows of queries or weights

/// Configures the tiles for rows of `pairs` pairs, whose last unit may be incomplete.
inline void shape_tiles(AmxTiles& tiles, std::int64_t pairs) {
  const int rest = static_cast<int>(pairs % tile_pairs);
  if (rest != 0) {
    tiles.shaped(amx_a + 1, tile_rows, rest);
    tiles.shaped(amx_b + 1, rest, tile_pairs);
  }
  tiles.begin();
}

/// 16 rows of K: in place, or copied if they are fewer or not evenly spaced (at the end of a page).
struct TileRows {
  const char* base;
  std::int64_t stride;
};
inline TileRows tile_rows_of(const std::uint32_t* const* rows, int count, std::int64_t pairs, std::uint32_t* copy) {
  const auto* const base = reinterpret_cast<const char*>(rows[0]);
  if (count >= tile_rows) {
    const std::int64_t stride = reinterpret_cast<const char*>(rows[1]) - base;
    if (reinterpret_cast<const char*>(rows[tile_rows - 1]) - base == (tile_rows - 1) * stride) return {base, stride};
    count = tile_rows;
  }
  for (int r = 0; r < count; ++r)  // rows of bf16 may begin at any even address
    std::memcpy(copy + r * pairs, static_cast<const void*>(rows[r]), 4 * static_cast<std::size_t>(pairs));
  return {reinterpret_cast<const char*>(copy), 4 * pairs};
}

/// Computes the scores of score_columns by AMX. `copy`: memory for 16 rows of words. It may write up to 15 rows of
/// scores beyond the block's last key; all other ranges end at a multiple of 16 keys.
template <int VECTORS>
HWY_NOINLINE void amx_score_columns(const Bf16Scores& scores, const ScoreRange& range, int vector,
                                    std::uint32_t* copy) {
  const Word* const visible = range.of_vector(vector);
  const std::uint32_t* const q = scores.q + vector * 16;
  const int whole = static_cast<int>(scores.words / tile_pairs), units = whole + (scores.words % tile_pairs != 0);
  const __m512 factor = _mm512_set1_ps(scores.scale);
  __m512 largest[VECTORS];
  ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) largest[v] = _mm512_load_ps(scores.alpha + (vector + v) * 16);
  for (int key = range.key; key < range.end; key += tile_rows) {
    const int rows = range.end - key < tile_rows ? range.end - key : tile_rows;
    const TileRows k = tile_rows_of(scores.k + key, rows, scores.words, copy);
    float* const s = scores.s + key * bf16_rows + vector * 16;
    clear_amx_sums<1, VECTORS>();
    const auto load_q = [&]<int B>(int v, int u) {
      tile_load<B>(q + u * tile_pairs * bf16_rows + v * 16, row_of_words);
    };
    add_amx_products<1, VECTORS>(
        0, whole,
        [&]<int A>(int, int u) {
          const char* const unit = k.base + 4 * tile_pairs * u;
          tile_load<A>(unit, k.stride);
          // the next 16 rows of K
          for (int r = 0; r < tile_rows; ++r) _mm_prefetch(unit + (tile_rows + r) * k.stride, _MM_HINT_T0);
        },
        load_q);
    add_amx_products<1, VECTORS, 1>(
        whole, units, [&]<int A>(int, int u) { tile_load<A>(k.base + 4 * tile_pairs * u, k.stride); }, load_q);
    store_amx_sums<1, VECTORS>(s, bf16_rows);
    for (int r = 0; r < rows; ++r)
      ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) {
        float* const place = s + r * bf16_rows + v * 16;
        __m512 x = _mm512_load_ps(place);
        if (scores.key_scale) x = _mm512_mul_ps(x, _mm512_set1_ps(scores.key_scale[key + r]));
        x = _mm512_mul_ps(x, factor);
        if (visible)
          x = _mm512_mask_blend_ps(static_cast<__mmask16>(visible[key + r] >> ((vector + v) * 16)),
                                   _mm512_set1_ps(-std::numeric_limits<float>::infinity()), x);
        largest[v] = _mm512_max_ps(largest[v], x);
        _mm512_store_ps(place, x);
      }
  }
  ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) _mm512_store_ps(scores.alpha + (vector + v) * 16, largest[v]);
}

/// Interleaves 32 rows of V, each with its neighbour, into 16 rows of `words` words, 32 columns at a time as long as
/// there are so many.
inline void pair_rows(const std::uint16_t* const* rows, std::int64_t columns, std::int64_t words, std::uint32_t* to) {
  for (int pair = 0; pair < tile_pairs; ++pair, rows += 2, to += words) {
    std::int64_t c = 0;
    for (; c + 32 <= columns; c += 32)
      store_interleaved(_mm512_loadu_si512(rows[0] + c), _mm512_loadu_si512(rows[1] + c), to + c);
    for (; c < columns; c += 16)
      _mm512_store_si512(to + c,
                         words_of_rows(rows[0] + c, rows[1] + c,
                                       columns - c >= 16 ? 0xFFFF : static_cast<__mmask16>((1u << (columns - c)) - 1)));
  }
}

/// Transposes 32 rows of V to [columns][16 pairs of rows], as tiles read them. `paired`: memory for 16 rows of `words`
/// words.
inline void transpose_values(const std::uint16_t* const* rows, std::int64_t columns, std::int64_t words,
                             std::uint32_t* paired, std::uint32_t* to) {
  pair_rows(rows, columns, words, paired);
  transpose(reinterpret_cast<const float*>(paired), words, std::int64_t{tile_pairs}, words,
            reinterpret_cast<float*>(to), std::int64_t{tile_pairs});
}

/// Computes the output of output_columns by AMX; the chain is over units of 32 keys. `values`: for each unit the result
/// of transpose_values, `words` columns long.
template <int VECTORS>
HWY_NOINLINE void amx_output_columns(const std::uint32_t* p, const std::uint32_t* values, std::int64_t words, int units,
                                     std::int64_t value_dim, float* o, const float* alpha, bool fresh) {
  alignas(64) float sums[tile_rows * bf16_rows];
  for (std::int64_t c = 0; c < value_dim; c += tile_rows) {
    const int columns = value_dim - c < tile_rows ? static_cast<int>(value_dim - c) : tile_rows;
    clear_amx_sums<1, VECTORS>();
    add_amx_products<1, VECTORS>(
        0, units, [&]<int A>(int, int u) { tile_load<A>(values + (u * words + c) * tile_pairs, 4 * tile_pairs); },
        [&]<int B>(int v, int u) { tile_load<B>(p + u * tile_pairs * bf16_rows + v * 16, row_of_words); });
    float* const place = o + c * bf16_rows;
    float* const to = fresh && columns == tile_rows ? place : sums;
    store_amx_sums<1, VECTORS>(to, bf16_rows);
    if (to == place) continue;
    __m512 a[VECTORS];
    ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) a[v] = _mm512_load_ps(alpha + v * 16);
    for (int r = 0; r < columns; ++r)
      ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) {
        const __m512 sum = _mm512_load_ps(sums + r * bf16_rows + v * 16);
        float* const at = place + r * bf16_rows + v * 16;
        _mm512_store_ps(at, fresh ? sum : _mm512_fmadd_ps(_mm512_load_ps(at), a[v], sum));
      }
  }
}

/// Computes the scores of decode rows, s[query][bf16_kv_block]. Keys are the rows of tiles, 64 keys at a time; their
/// sums are transposed. `copy`: memory for 64 rows of words.
HWY_NOINLINE inline void amx_decode_scores(const Bf16Scores& scores, int key, int end, int queries,
                                           StreamPrefetcher& ahead, std::uint32_t* copy) {
  alignas(64) float sums[bf16_rows * tile_rows];
  const int whole = static_cast<int>(scores.words / tile_pairs), units = whole + (scores.words % tile_pairs != 0);
  for (int keys; key < end; key += keys) {
    keys = end - key < bf16_rows ? end - key : bf16_rows;
    TileRows k[4];
    for (int g = 0; g < 4; ++g)  // beyond the last key the first tile is read again
      k[g] = g * tile_rows < keys ? tile_rows_of(scores.k + key + g * tile_rows, keys - g * tile_rows, scores.words,
                                                 copy + g * tile_rows * scores.words)
                                  : k[0];
    clear_amx_sums<4, 1>();
    const auto load_q = [&]<int B>(int, int u) { tile_load<B>(scores.q + u * tile_pairs * bf16_rows, row_of_words); };
    add_amx_products<4, 1>(
        0, whole,
        [&]<int A>(int g, int u) {
          tile_load<A>(k[g].base + 4 * tile_pairs * u, k[g].stride);
          ahead.fetch_eight();
          if (ahead.late()) ahead.fetch_eight();
        },
        load_q);
    add_amx_products<4, 1, 1>(
        whole, units, [&]<int A>(int g, int u) { tile_load<A>(k[g].base + 4 * tile_pairs * u, k[g].stride); }, load_q);
    store_amx_sums<4, 1>(sums, tile_rows);
    transpose(sums, std::int64_t{tile_rows}, std::int64_t{keys}, std::int64_t{queries}, scores.s + key,
              std::int64_t{bf16_kv_block});
  }
}

/// Interleaves 32 rows of V, each with its neighbour, into 16 rows of `words` words. Each 32 columns are interleaved
/// within 128-bit lanes, which is faster; in_order restores their order later.
inline void pair_rows_in_halves(const std::uint16_t* const* rows, std::int64_t columns, std::int64_t words,
                                StreamPrefetcher& ahead, std::uint32_t* to) {
  for (int pair = 0; pair < tile_pairs; ++pair, rows += 2, to += words) {
    std::int64_t c = 0;
    for (; c + 32 <= columns; c += 32) {
      const __m512i low = _mm512_loadu_si512(rows[0] + c), high = _mm512_loadu_si512(rows[1] + c);
      _mm512_store_si512(to + c, _mm512_unpacklo_epi16(low, high));
      _mm512_store_si512(to + c + 16, _mm512_unpackhi_epi16(low, high));
    }
    ahead.fetch<4>();
    if (ahead.late()) ahead.fetch<4>();
    for (; c < columns; c += 16)
      _mm512_store_si512(to + c,
                         words_of_rows(rows[0] + c, rows[1] + c,
                                       columns - c >= 16 ? 0xFFFF : static_cast<__mmask16>((1u << (columns - c)) - 1)));
  }
}

/// PV of 32 keys of a block in decode.
struct DecodeAmxBlock {
  const std::uint32_t* weights;  // [queries][bf16_kv_block / 2], from the first of the 32 keys on
  const std::uint32_t* values;   // [16 pairs][words]
  std::int64_t words, columns;
  int queries;
  bool begins, ends, first;  // whether these keys begin, end the block; whether no block was accumulated before
};

/// Sets the shapes of the tiles of sums and of weights to one row per query; `begin` applies them.
inline void shape_decode_tiles(AmxTiles& tiles, int queries) {
  for (int tile = 0; tile <= amx_a; ++tile) tiles.shaped(tile, queries, tile_pairs);
}

/// Adds 32 keys to the block's chain and, if they end the block, computes o[query][words] = fma(o, alpha, chain).
/// Queries are the rows of tiles; 64 columns are computed at a time. Until the block ends its sums stay in `sums`,
/// [words / 16][16 queries][16].
HWY_NOINLINE inline void amx_decode_outputs(const DecodeAmxBlock& decode, const float* alpha, StreamPrefetcher& ahead,
                                            float* sums, float* o) {
  constexpr std::int64_t row_of_sums = 4 * tile_rows, row_of_weights = 2 * bf16_kv_block;
  tile_load<amx_a>(decode.weights, row_of_weights);
  for (std::int64_t c = 0, left; (left = (decode.words - c) / 16) > 0; c += 16 * (left >= 4 ? 4 : left >= 2 ? 2 : 1)) {
    const auto columns = [&]<int VECTORS>() ATTN_BF16_ATTR {
      float* const own = sums + c * tile_rows;
      const auto sum_at = [&](int v) { return own + v * tile_words; };
      for_each_amx_sum<1, VECTORS>([&]<int C>(int, int v) {
        if (decode.begins) tile_zero<C>();
        else tile_load<C>(sum_at(v), row_of_sums);
      });
      add_amx_products<1, VECTORS>(
          0, 1, []<int>(int, int) {},  // the weights are loaded already
          [&]<int B>(int v, int) {
            tile_load<B>(decode.values + c + v * 16, 4 * decode.words);
            ahead.fetch_eight();
          });
      for_each_amx_sum<1, VECTORS>([&]<int C>(int, int v) { tile_store<C>(sum_at(v), row_of_sums); });
      if (!decode.ends) return;
      for (int q = 0; q < decode.queries; ++q) {
        __m512 sum[VECTORS];
        ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v)
          sum[v] = _mm512_load_ps(own + v * tile_rows * tile_rows + q * tile_rows);
        ATTN_UNROLL_FOR (int v = 0; v + 1 < VECTORS; v += 2)
          if (c + v * 16 + 32 <= decode.columns) in_order(sum[v], sum[v + 1]);
        ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) {
          float* const at = o + q * decode.words + c + v * 16;
          _mm512_store_ps(
              at, decode.first ? sum[v] : _mm512_fmadd_ps(_mm512_load_ps(at), _mm512_set1_ps(alpha[q]), sum[v]));
        }
      }
    };
    if (left >= 4) columns.template operator()<4>();
    else if (left >= 2) columns.template operator()<2>();
    else columns.template operator()<1>();
  }
}

}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
#endif
