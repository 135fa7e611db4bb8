// src/kernels/attention/few_bytes-inl.h: strips of few rows (decoding) over keys and values of 8 bits, widened in registers.
//
//   16 bytes of each of N keys, turned as four words:      word i, lane = key:   column 4i | 4i + 1 | 4i + 2 | 4i + 3
//                                                          each byte shifted out with its sign, made a number, times the key's scale
//
// The same operations as on rows that were widened before (stored_rows-inl.h), so the same bits; but a row takes a quarter of the loads
// of f32 and is stored nowhere.
#if defined(ATTN_FEW_BYTES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_FEW_BYTES_INL_H
#undef ATTN_FEW_BYTES_INL_H
#else
#define ATTN_FEW_BYTES_INL_H
#endif

#include "kernels/attention/few_scores-inl.h"
#include "kernels/attention/stored_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// Whether rows are for these tiles: whole pieces of 16 bytes, each with one scale.
inline bool in_byte_tiles(const KeyRows& rows, std::int64_t columns) {
  return rows.element == Element::i8 && columns % 16 == 0 && rows.row_stride % 16 == 0 && (rows.scale_group % 16 == 0 || rows.scale_group >= columns);
}

/// A block's rows of 8 bits and their scales.
struct ByteRows {
  const std::int8_t* row[key_block];
  const float* scales[key_block];  // one a group
  std::int64_t group;

  ByteRows(const KeyRows& head, std::int64_t first, int keys) : group(head.scale_group) {
    for_each_row(head, first, keys, [&](std::int64_t r, const char* at, const float* of_row) {
      row[r] = reinterpret_cast<const std::int8_t*>(at);
      scales[r] = of_row;
    });
  }
};

/// FewScoresTile for keys of 8 bits, pointed to as words, `stride` of them apart. `scales` are those of the keys from `first_key` on.
struct FewScoresByteTile {
  std::int64_t dim;
  const float* q;
  const float* first_key;
  const float* const* scales;
  std::int64_t group;
  LinesAhead* ahead;  // of the keys

  template <int ROWS, int VECTORS>
  HWY_NOINLINE void operator()(const float* const* keys, std::int64_t stride, int row, float* scores, std::int64_t to_stride) const {
    const Tag<float> d;
    const hn::RebindToSigned<Tag<float>> whole;
    constexpr int N = lanes<float>;
    const float* const* const of_tile = keys[0] == first_key ? scales : scales + N;  // one vector of two, where two are too many
    Vector<float> sum[ROWS][VECTORS], scale[VECTORS];
    ATTN_UNROLL for (int r = 0; r < ROWS; ++r) ATTN_UNROLL for (int v = 0; v < VECTORS; ++v) sum[r][v] = hn::Zero(d);
    RowsInStep<Tag<float>> first(keys[0], stride), second(keys[VECTORS - 1], stride);
    std::int64_t group_end = 0;
    for (std::int64_t c = 0, n = 0; c < dim; c += 16) {
      if (c == group_end) {
        ATTN_UNROLL for (int v = 0; v < VECTORS; ++v) {
          alignas(64) float of_keys[N];
          for (int i = 0; i < N; ++i) of_keys[i] = of_tile[v * N + i][n];
          scale[v] = hn::Load(d, of_keys);
        }
        group_end += group;
        ++n;
      }
      if constexpr (asks_ahead<float> && ROWS > 1 && VECTORS > 1) ahead->fetch<(VECTORS * N + 3) / 4>();
      Vector<float> words[VECTORS][4];
      first.next(d, words[0]);
      if constexpr (VECTORS == 2) second.next(d, words[1]);
      const float* of_rows = q + c * few_rows + row;
      ATTN_UNROLL for (int i = 0; i < 4; ++i) {
        Vector<float> column[4][VECTORS];
        ATTN_UNROLL for (int v = 0; v < VECTORS; ++v) {
          const auto word = hn::BitCast(whole, words[v][i]);
          column[0][v] = hn::Mul(hn::ConvertTo(d, hn::ShiftRight<24>(hn::ShiftLeft<24>(word))), scale[v]);
          column[1][v] = hn::Mul(hn::ConvertTo(d, hn::ShiftRight<24>(hn::ShiftLeft<16>(word))), scale[v]);
          column[2][v] = hn::Mul(hn::ConvertTo(d, hn::ShiftRight<24>(hn::ShiftLeft<8>(word))), scale[v]);
          column[3][v] = hn::Mul(hn::ConvertTo(d, hn::ShiftRight<24>(word)), scale[v]);
        }
        ATTN_UNROLL for (int b = 0; b < 4; ++b)
          ATTN_UNROLL for (int r = 0; r < ROWS; ++r) {
            const auto x = hn::Set(d, of_rows[(4 * i + b) * few_rows + r]);
            ATTN_UNROLL for (int v = 0; v < VECTORS; ++v) sum[r][v] = hn::MulAdd(column[b][v], x, sum[r][v]);
          }
      }
    }
    ATTN_UNROLL for (int r = 0; r < ROWS; ++r)
      ATTN_UNROLL for (int v = 0; v < VECTORS; ++v) hn::StoreU(sum[r][v], d, scores + (row + r) * to_stride + v * N);
  }
};

/// FewRowsTile for values of 8 bits: keys [first_key, first_key + keys) of the block; weights p[key][p_stride], of the first of them on.
struct FewRowsByteTile {
  const ByteRows& values_of;
  int first_key, keys;
  const float* p;
  std::int64_t p_stride;
  FewFold<float> fold;

  template <int ROWS, int VECTORS>
  HWY_NOINLINE void operator()(int row, std::int64_t column, float* o) const {
    const Tag<float> d;
    constexpr int N = lanes<float>;
    Vector<float> sum[ROWS][VECTORS];
    std::int64_t group[VECTORS];
    fold.start(o, sum);
    ATTN_UNROLL for (int x = 0; x < VECTORS; ++x) group[x] = (column + x * N) / values_of.group;
    const float* weights = p + row;
    for (int key = first_key; key < first_key + keys; ++key, weights += p_stride) {
      if constexpr (asks_ahead<float> && ROWS > 1 && VECTORS > 1) fold.ahead->fetch<(VECTORS * N + 63) / 64>();
      const std::int8_t* const value = values_of.row[key] + column;
      Vector<float> values[VECTORS];
      ATTN_UNROLL for (int x = 0; x < VECTORS; ++x) values[x] = hn::Mul(widen(d, value + x * N), hn::Set(d, values_of.scales[key][group[x]]));
      ATTN_UNROLL for (int r = 0; r < ROWS; ++r) {
        const auto weight = hn::Set(d, weights[r]);
        ATTN_UNROLL for (int x = 0; x < VECTORS; ++x) sum[r][x] = hn::MulAdd(values[x], weight, sum[r][x]);
      }
    }
    fold.finish(row, o, sum);
  }
};

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
