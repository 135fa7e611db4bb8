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

/// A block's rows of 8 bits, run by run: those of a page, or all of them, which lie evenly.
struct ByteRows {
  struct Run {
    const std::int8_t* row;
    const float* scales;
    int first, keys;  // of the block
  };
  Run run[key_block];
  int runs = 0, keys;
  std::int64_t stride, scale_stride;  // between rows, and between their scales
  std::int64_t group, columns;

  /// At most 64 keys.
  ByteRows(const KeyRows& head, std::int64_t first, int count, std::int64_t row_columns)
      : keys(count), stride(head.row_stride), scale_stride(head.scale_stride), group(head.scale_group), columns(row_columns) {
    for (int r = 0; r < keys; r += run[runs++].keys)
      run[runs] = {reinterpret_cast<const std::int8_t*>(row_at(head, first + r)), scales_at(head, first + r), r,
                   static_cast<int>(rows_of_page(head, first + r, keys - r))};
  }

  /// Which scale a column has.
  std::int64_t group_of(std::int64_t column) const { return group >= columns ? 0 : column / group; }

  /// Those of a vector of keys: `of_first` is of the first.
  Vector<float> scales_of(const float* of_first) const {
    const Tag<float> d;
    constexpr int N = lanes<float>;
    if (scale_stride == 1) return hn::LoadU(d, of_first);
    alignas(64) float of_keys[N];
    for (int i = 0; i < N; ++i) of_keys[i] = of_first[i * scale_stride];
    return hn::Load(d, of_keys);
  }

  /// visit(run, first row of it, keys): those of [begin, end), run by run.
  template <typename F>
  HWY_INLINE void for_each_run(int begin, int end, F&& visit) const {
    for (const Run* at = run; at < run + runs && at->first < end; ++at) {
      const int skipped = begin > at->first ? begin - at->first : 0, keys = (end < at->first + at->keys ? end - at->first : at->keys) - skipped;
      if (keys > 0) visit(*at, skipped, keys);
    }
  }
};

/// N keys that lie evenly: `key` is the first of them in the block.
struct ByteKeys {
  const float* row;  // as words
  const float* scales;
  int key;
};

/// for_each_few_keys of the keys [begin, end): turned(keys, vectors), plain(first key, end).
template <typename Turned, typename Plain>
HWY_INLINE void for_each_byte_keys(const ByteRows& rows, int begin, int end, Turned&& turned, Plain&& plain) {
  constexpr int N = lanes<float>;
  ByteKeys found[2];
  int count = 0;
  const auto done = [&] {
    if (count > 0) turned(found, count);
    count = 0;
  };
  rows.for_each_run(begin, end, [&](const ByteRows::Run& run, int first, int keys) {
    if (keys < N) return plain(run.first + first, run.first + first + keys);
    const int last = first + keys - N;  // the last N perhaps for the second time
    for (int r = first; r < first + keys; r += N) {
      if (r > last) r = last;
      const ByteKeys next = {reinterpret_cast<const float*>(run.row + r * rows.stride), run.scales + r * rows.scale_stride, run.first + r};
      if (count == 2 || (count == 1 && found[0].key + N != next.key)) done();
      found[count++] = next;
    }
  });
  done();
}

/// Byte b of every word, as a number.
HWY_INLINE Vector<float> byte_of(Vector<float> words, int b) {
  const Tag<float> d;
  const auto word = hn::BitCast(hn::RebindToSigned<Tag<float>>(), words);
  switch (b) {
    case 0: return hn::ConvertTo(d, hn::ShiftRight<24>(hn::ShiftLeft<24>(word)));
    case 1: return hn::ConvertTo(d, hn::ShiftRight<24>(hn::ShiftLeft<16>(word)));
    case 2: return hn::ConvertTo(d, hn::ShiftRight<24>(hn::ShiftLeft<8>(word)));
    default: return hn::ConvertTo(d, hn::ShiftRight<24>(word));
  }
}

/// FewScoresTile for keys of 8 bits, pointed to as words, `stride` of them apart.
struct FewScoresByteTile {
  const float* q;
  const ByteRows& rows;
  const ByteKeys* found;
  LinesAhead* ahead;  // of the keys

  /// The words of the next 16 columns are loaded between the products of these: all at once they would keep the multipliers waiting, a fifth of the
  /// time. Lines are asked for once: again, as of wider elements (lines_ahead.h), would take time that the products need.
  template <int ROWS, int VECTORS>
  HWY_NOINLINE void operator()(const float* const* keys, std::int64_t stride, int row, float* scores, std::int64_t to_stride) const {
    const Tag<float> d;
    constexpr int N = lanes<float>;
    constexpr int lines = asks_ahead<float> && (VECTORS > 1 || registers == 16) ? (VECTORS * N + 3) / 4 : 0;
    const ByteKeys* const of_tile = found + (keys[0] == found[0].row ? 0 : 1);  // one vector of two, where two are too many
    Vector<float> sum[ROWS][VECTORS], scale[VECTORS], words[VECTORS][4], next[VECTORS][4];
    ATTN_UNROLL for (int r = 0; r < ROWS; ++r) ATTN_UNROLL for (int v = 0; v < VECTORS; ++v) sum[r][v] = hn::Zero(d);
    RowsInStep<Tag<float>> first(keys[0], stride), second(keys[VECTORS - 1], stride);
    first.next(d, words[0]);
    if constexpr (VECTORS == 2) second.next(d, words[1]);
    const float* of_rows = q + row;
    std::int64_t group_end = 0;
    for (std::int64_t c = 0, n = 0; c < rows.columns; c += 16, of_rows += 16 * few_rows) {
      if (c == group_end) {
        ATTN_UNROLL for (int v = 0; v < VECTORS; ++v) scale[v] = rows.scales_of(of_tile[v].scales + n);
        group_end += rows.group;
        ++n;
      }
      const auto asks = take<lines, 1>(*ahead, keys[0]);
      if (c + 16 == rows.columns) {  // once more what is there
        first.advance(-4);
        if constexpr (VECTORS == 2) second.advance(-4);
      }
      ATTN_UNROLL for (int i = 0; i < 4; ++i)
        ATTN_UNROLL for (int b = 0; b < 4; ++b) {
          if (b == 0) next[0][i] = first.pieces(d, i);
          if (b == 1 && VECTORS == 2) next[VECTORS - 1][i] = second.pieces(d, i);
          Vector<float> column[VECTORS];
          ATTN_UNROLL for (int v = 0; v < VECTORS; ++v) column[v] = hn::Mul(byte_of(words[v][i], b), scale[v]);
          ATTN_UNROLL for (int r = 0; r < ROWS; ++r) {
            const auto x = hn::Set(d, of_rows[(4 * i + b) * few_rows + r]);
            ATTN_UNROLL for (int v = 0; v < VECTORS; ++v) sum[r][v] = hn::MulAdd(column[v], x, sum[r][v]);
            ask_share<lines>(asks, (4 * i + b) * ROWS + r, 16 * ROWS);
          }
        }
      ATTN_UNROLL for (int v = 0; v < VECTORS; ++v) turn_pieces(d, next[v], words[v]);
      first.advance(4);
      if constexpr (VECTORS == 2) second.advance(4);
    }
    ATTN_UNROLL for (int r = 0; r < ROWS; ++r)
      ATTN_UNROLL for (int v = 0; v < VECTORS; ++v) hn::StoreU(sum[r][v], d, scores + (row + r) * to_stride + v * N);
  }
};

/// FewRowsTile for values of 8 bits: keys [begin, end) of the block; weights p[key][p_stride], of the first of them on.
struct FewRowsByteTile {
  const ByteRows& rows;
  int begin, end;
  const float* p;
  std::int64_t p_stride;
  FewFold<float> fold;

  template <int ROWS, int VECTORS>
  HWY_NOINLINE void operator()(int row, std::int64_t column, float* o) const {
    const Tag<float> d;
    constexpr int N = lanes<float>, step_keys = 4;  // after which more lines are looked for
    constexpr int lines = asks_ahead<float> && VECTORS > 1 ? (VECTORS * N * step_keys + 63) / 64 : 0;
    Vector<float> sum[ROWS][VECTORS];
    std::int64_t group[VECTORS];
    fold.start(o, sum);
    ATTN_UNROLL for (int x = 0; x < VECTORS; ++x) group[x] = rows.group_of(column + x * N);
    const float* weights = p + row;
    const std::int64_t stride = rows.stride, scale_stride = rows.scale_stride, weights_stride = p_stride;
    rows.for_each_run(begin, end, [&](const ByteRows::Run& run, int first, int keys) HWY_ATTR {
      const std::int8_t* value = run.row + first * stride + column;
      const float* scale = run.scales + first * scale_stride;
      for (int step = step_keys; keys > 0; keys -= step) {
        if (keys < step) step = keys;
        const auto asks = take<lines, 1>(*fold.ahead, value);
        for (int n = 0; n < step; ++n, value += stride, scale += scale_stride, weights += weights_stride) {
          Vector<float> values[VECTORS];
          ATTN_UNROLL for (int x = 0; x < VECTORS; ++x) values[x] = hn::Mul(widen(d, value + x * N), hn::Set(d, scale[group[x]]));
          ATTN_UNROLL for (int r = 0; r < ROWS; ++r) {
            const auto weight = hn::Set(d, weights[r]);
            ATTN_UNROLL for (int x = 0; x < VECTORS; ++x) sum[r][x] = hn::MulAdd(values[x], weight, sum[r][x]);
          }
          ask_share<lines>(asks, n, step_keys);
        }
      }
    });
    fold.finish(row, o, sum);
  }
};

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
