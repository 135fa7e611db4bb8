// src/kernels/attention/tiles/decode_int8-inl.h: QK^T and PV of decode rows over int8 K and V, converted in registers.
//
//   keys     16 words side by side, of as many keys: columns 4i | 4i + 1 | 4i + 2 | 4i + 3, each byte shifted out with
//            its sign
//   values   64 columns side by side, then those of the next row
//  Each byte is converted and multiplied by its row's scale: the same operations, so the same bits, as on rows that
// were converted before (kv_block_cache-inl.h); but a row takes a quarter of the loads of f32 and is not stored.
#if defined(ATTN_DECODE_INT8_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_DECODE_INT8_INL_H
#undef ATTN_DECODE_INT8_INL_H
#else
#define ATTN_DECODE_INT8_INL_H
#endif

#include "kernels/prefetch/int8_group_cursor.h"
#include "kernels/attention/tiles/decode_qk-inl.h"
#include "kernels/attention/kv/kv_block_cache-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// Returns whether these tiles can read K: whole 32-bit words, each with one scale.
inline bool keys_in_int8_tiles(std::int64_t columns, std::int64_t scale_group) {
  return columns % KvRows::k_interleave_width == 0 &&
         (scale_group % KvRows::k_interleave_width == 0 || scale_group >= columns);
}
/// Returns whether they can read V: each vector in one cache line and with one scale, also the last one, which may
/// overlap the vector before it (DecodeOutput).
inline bool values_in_int8_tiles(std::int64_t columns, std::int64_t scale_group) {
  constexpr int N = lanes<float>;
  const std::int64_t last_line = columns % KvRows::line;
  return (last_line == 0 || last_line >= N) && (scale_group >= columns || (columns % N == 0 && scale_group % N == 0));
}
/// Returns whether they can read both, in this representation, for a head that begins at key `first`: blocks must be
/// whole groups of rows.
inline bool in_int8_tiles(const AttentionProblem& p, Element form, std::int64_t first) {
  return p.k.element == form && p.v.element == form && keys_in_int8_tiles(p.dim, p.k.scale_group) &&
         values_in_int8_tiles(p.value_dim, p.v.scale_group) && first % KvRows::group_rows == 0;
}

/// The most vectors of keys in a tile.
inline constexpr int byte_vectors = registers == 16 ? 2 : 4;

/// Vector by vector: the words of so many keys' first columns, those of the next ones a group's 16 further on.
using ByteKeys = const float* [byte_vectors];

/// visit(key, vectors, keys): those that hold the keys [begin, end) of a block, which has place for `most` scores a
/// row. The last is there again where a tile has more.
template <typename F>
HWY_INLINE void for_each_byte_keys(const Int8GroupCursor& cursor, int begin, int end, int most, F&& visit) {
  constexpr int N = lanes<float>;
  for (int key = begin / N * N, vectors; key < end; key += N * vectors) {
    vectors = end - key > N && key + byte_vectors * N <= most ? byte_vectors : 1;
    ByteKeys found;
    ATTN_ROLLED for (int v = 0; v < vectors; ++v) {
      const int at = std::min(key + v * N, (end - 1) / N * N);
      found[v] = reinterpret_cast<const float*>(cursor.group(at)) + at % Int8GroupCursor::rows;
    }
    visit(key, vectors, found);
  }
}

/// Where a row's columns are in its group: as many adjacent ones as a cache line has, fewer at the end.
struct ByteColumns {
  std::int64_t columns, scale_group;

  explicit ByteColumns(const KvRows& head) : columns(head.row_stride), scale_group(head.scale_group) {}
  /// From a row to the next.
  std::int64_t width(std::int64_t column) const {
    const std::int64_t left = columns - column / KvRows::line * KvRows::line;
    return left < KvRows::line ? left : KvRows::line;
  }
  /// From a group's first byte to a column of its first row.
  static constexpr std::int64_t offset(std::int64_t column) {
    return column / KvRows::line * KvRows::line * KvRows::group_rows + column % KvRows::line;
  }
  /// Which scale a column has.
  std::int64_t scale_of(std::int64_t column) const { return scale_group >= columns ? 0 : column / scale_group; }
};

/// visit(key, keys, row of the group): keys [begin, end) of a block, those of a group at a time.
template <typename F>
HWY_INLINE void for_each_byte_group(int begin, int end, F&& visit) {
  for (int key = begin, keys; key < end; key += keys) {
    const int row = key % Int8GroupCursor::rows;
    keys = std::min(Int8GroupCursor::rows - row, end - key);
    visit(key, keys, row);
  }
}

/// Offset from an address that a tile reads to the one that it prefetches. The tile of the first row prefetches for the
/// other rows too; theirs is 0.
HWY_INLINE Address to_prefetched(const Int8GroupCursor& cursor, int key, int row) {
  return row == 0 ? cursor.to_prefetched(key) : 0;
}

/// Whether these tiles read sign-magnitude too, where bf16 uses it. It takes an eighth more time.
inline constexpr bool tiles_read_sign_magnitude8 = HWY_TARGET == HWY_AVX3;

/// Converts bytes of one form to two's complement.
template <Element FORM, class D>
HWY_INLINE hn::Vec<D> as_i8(D d, hn::Vec<D> bytes) {
  if constexpr (FORM == Element::sign_magnitude8) return other_form(d, bytes);
  else return bytes;
}
/// Calls visit.template operator()<FORM>() of rows that are in tiles.
template <class F>
HWY_INLINE void by_form(const KvRows& rows, F&& visit) {
  if constexpr (tiles_read_sign_magnitude8)
    if (rows.element == Element::sign_magnitude8) return visit.template operator()<Element::sign_magnitude8>();
  visit.template operator()<Element::i8>();
}

/// Returns byte b of every word as a number.
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

/// DecodeQkTile for int8 keys: columns [0, columns).
template <Element FORM>
struct DecodeQkInt8Tile {
  static constexpr bool wide = true;
  const float* q;
  const KvRows& rows;
  std::int64_t columns;
  const ByteKeys& found;
  int key;                        // the first of them in the block
  const Int8GroupCursor& cursor;  // of the keys

  template <int ROWS, int VECTORS>
  HWY_NOINLINE void operator()(const float* const* keys, std::int64_t, int row, float* scores,
                               std::int64_t to_stride) const {
    const Tag<float> d;
    constexpr int N = lanes<float>, word = KvRows::k_interleave_width;
    const hn::Repartition<std::int8_t, Tag<float>> of_bytes;
    constexpr int line_vectors = Int8GroupCursor::rows / N,
                  lines = prefetches_ahead<float> ? (VECTORS + line_vectors - 1) / line_vectors : 0;
    const float *words[VECTORS], *scales[VECTORS];
    Address ahead[VECTORS];
    Vector<float> sum[ROWS][VECTORS], scale[VECTORS];
    ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) {
      const int first = key + static_cast<int>(keys - found + v) * N;
      words[v] = keys[v];
      scales[v] = cursor.scales(first);
      ahead[v] = to_prefetched(cursor, first, row);
    }
    ATTN_UNROLL_FOR (int r = 0; r < ROWS; ++r)
      ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) sum[r][v] = hn::Zero(d);
    const float* of_rows = q + row;
    std::int64_t group_end = 0;
    for (std::int64_t c = 0, n = 0; c < columns; c += word, of_rows += word * max_decode_rows) {
      if (c == group_end) {
        ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) scale[v] = scales_of(scales[v] + n);
        group_end += rows.scale_group;
        ++n;
      }
      Vector<float> of_keys[VECTORS];
      ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v)
        of_keys[v] = hn::BitCast(d, as_i8<FORM>(of_bytes, hn::BitCast(of_bytes, hn::LoadU(d, words[v]))));
      ATTN_UNROLL_FOR (int b = 0; b < word; ++b) {
        Vector<float> column[VECTORS];
        ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) column[v] = hn::Mul(byte_of(of_keys[v], b), scale[v]);
        ATTN_UNROLL_FOR (int r = 0; r < ROWS; ++r) {
          const auto x = hn::Set(d, of_rows[b * max_decode_rows + r]);
          ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) sum[r][v] = hn::MulAdd(column[v], x, sum[r][v]);
          prefetch_share_of<lines>(
              [&](int i) HWY_ATTR { return address_of(words[i * line_vectors]) + ahead[i * line_vectors]; },
              b * ROWS + r, word * ROWS);
        }
      }
      ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) words[v] += KvRows::group_rows;
    }
    ATTN_UNROLL_FOR (int r = 0; r < ROWS; ++r)
      ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) hn::StoreU(sum[r][v], d, scores + (row + r) * to_stride + v * N);
  }

 private:
  /// Those of a vector of keys.
  HWY_INLINE Vector<float> scales_of(const float* of_first) const {
    const Tag<float> d;
    constexpr int N = lanes<float>;
    if (rows.scale_stride == 1) return hn::LoadU(d, of_first);
    alignas(64) float of_keys[N];
    for (int i = 0; i < N; ++i) of_keys[i] = of_first[i * rows.scale_stride];
    return hn::Load(d, of_keys);
  }
};

/// DecodePvTile for int8 values: keys [begin, end) of a block; weights p[key][p_stride], of the first of them on.
template <Element FORM>
struct DecodePvInt8Tile {
  ByteColumns at;
  const Int8GroupCursor& cursor;  // of the values
  int begin, end;
  const float* p;
  std::int64_t p_stride;
  PvEpilogue<float> epilogue;

  template <int ROWS, int VECTORS>
  HWY_NOINLINE void operator()(int row, std::int64_t column, float* o) const {
    const Tag<float> d;
    constexpr int N = lanes<float>, width = VECTORS * N, line = static_cast<int>(KvRows::line);
    constexpr int step_keys = width < line ? line / width : 1, lines = !prefetches_ahead<float> ? 0
                                                                       : width < line           ? 1
                                                                                                : width / line;
    Vector<float> sum[ROWS][VECTORS];
    std::int64_t scale_of[VECTORS];
    epilogue.start(o, sum);
    ATTN_UNROLL_FOR (int x = 0; x < VECTORS; ++x) scale_of[x] = at.scale_of(column + x * N);
    const float* weights = p + row;
    const std::int64_t stride = at.width(column), scale_stride = cursor.scale_stride(), weights_stride = p_stride;
    // tiles that share a step's lines prefetch one each
    const std::int64_t share = column / width % step_keys * line - column % line;
    for_each_byte_group(begin, end, [&](int key, int keys, int first) HWY_ATTR {
      const std::int8_t* value = cursor.group(key) + ByteColumns::offset(column) + first * stride;
      const float* scale = cursor.scales(key);
      const Address ahead = to_prefetched(cursor, key, row);
      for (int step = step_keys; keys > 0; keys -= step) {
        if (step_keys > 1 && keys < step) step = keys;
        const Address prefetched = address_of(value) + static_cast<Address>(share) + ahead;
        for (int n = 0; n < step; ++n, value += stride, scale += scale_stride, weights += weights_stride) {
          Vector<float> values[VECTORS];
          ATTN_UNROLL_FOR (int x = 0; x < VECTORS; ++x)
            values[x] = hn::Mul(
                widen(d, as_i8<FORM>(BytesOfVector(), hn::LoadU(BytesOfVector(), value + ByteColumns::offset(x * N)))),
                hn::Set(d, scale[scale_of[x]]));
          prefetch_share_of<lines>(
              [&](int i) HWY_ATTR { return prefetched + static_cast<Address>(ByteColumns::offset(i * line)); }, n,
              step_keys);
          ATTN_UNROLL_FOR (int r = 0; r < ROWS; ++r) {
            const auto weight = hn::Set(d, weights[r]);
            ATTN_UNROLL_FOR (int x = 0; x < VECTORS; ++x) sum[r][x] = hn::MulAdd(values[x], weight, sum[r][x]);
          }
        }
      }
    });
    epilogue.finish(row, o, sum);
  }
};

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
