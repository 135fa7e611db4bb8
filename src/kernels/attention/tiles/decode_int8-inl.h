// src/kernels/attention/tiles/decode_int8-inl.h: defines the loaders of int8 K and V for decode rows, which convert in
// registers.
//
//   keys     a 32-bit word holds the columns 4i, 4i + 1, 4i + 2, 4i + 3 of a key; the words of 16 keys are adjacent;
//            a byte is extracted by two shifts, the second of which extends its sign
//   values   64 columns of a row are adjacent, then the same columns of the next row
//  Each byte is converted and multiplied by its row's scale. These are the operations, so the bits, of rows that are
// converted before (kv_block_cache-inl.h), but a row takes a quarter of the loads of f32 and is not stored.
#if defined(ATTN_DECODE_INT8_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_DECODE_INT8_INL_H
#undef ATTN_DECODE_INT8_INL_H
#else
#define ATTN_DECODE_INT8_INL_H
#endif

#include "kernels/attention/kv/int8_groups.h"
#include "kernels/attention/tiles/decode_qk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// Returns whether these loaders can read K: its rows must be 32-bit words, each with one scale.
inline bool keys_in_int8_tiles(std::int64_t columns, std::int64_t scale_group) {
  return columns % KvRows::k_interleave_width == 0 &&
         (scale_group % KvRows::k_interleave_width == 0 || scale_group >= columns);
}
/// Returns whether these loaders can read V: each vector needs one cache line and one scale, also the last vector,
/// which may overlap the vector before it (DecodeOutput).
inline bool values_in_int8_tiles(std::int64_t columns, std::int64_t scale_group) {
  constexpr int N = lanes<float>;
  const std::int64_t last_line = columns % KvRows::line;
  return (last_line == 0 || last_line >= N) && (scale_group >= columns || (columns % N == 0 && scale_group % N == 0));
}
/// Returns whether these loaders can read both K and V in the representation `form`, for a head that begins at key
/// `first`: blocks must begin at a group of rows.
inline bool in_int8_tiles(const AttentionProblem& p, Element form, std::int64_t first) {
  return p.k.element == form && p.v.element == form && keys_in_int8_tiles(p.dim, p.k.scale_group) &&
         values_in_int8_tiles(p.value_dim, p.v.scale_group) && first % KvRows::group_rows == 0;
}

/// The int8 keys of a tile: vectors of keys from key `first` of the block on. A tile with more vectors reads the vector
/// of key `last` again.
struct Int8KeyGroups {
  using Compute = float;
  static constexpr int most = registers == 16 ? 2 : 4;
  static constexpr bool four_rows = true, whole_steps = true;
  const KvRows& head;
  const Int8Groups& addresses;
  StreamPrefetcher& ahead;
  int first, last;

  /// Lines are prefetched once, because a byte is converted before its product: four times take 14 % more time in f32.
  template <int VECTORS, class Tile>
  HWY_INLINE void prefetching(const Tile& tile) const {
    tile.template operator()<1>();
  }

  /// The addresses of the words of VECTORS vectors of keys; the words of the next columns are group_rows (16) words
  /// further on. As many words as a vector reads are prefetched for it.
  template <int VECTORS>
  struct Words {
    static constexpr int bytes = lanes<float> * static_cast<int>(sizeof(float));
    const float *at[VECTORS], *scales[VECTORS];
    Address ahead[VECTORS];

    HWY_INLINE Words(const Int8KeyGroups& keys, int vector) {
      const std::int64_t lines = keys.head.row_stride * lanes<float> / KvRows::line;
      ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) {
        const int key = std::min(keys.first + (vector + v) * lanes<float>, keys.last);
        at[v] = reinterpret_cast<const float*>(keys.addresses.group[key / Int8Groups::rows]) + key % Int8Groups::rows;
        scales[v] = keys.addresses.scales_of(key);
        ahead[v] = prefetches_ahead<float> ? keys.ahead.take<1>(lines, address_of(at[v])).at[0] - bytes : 0;
      }
    }
    HWY_INLINE Vector<float> next(int v) {
      const auto words = hn::LoadU(Tag<float>(), at[v]);
      at[v] += KvRows::group_rows;
      ahead[v] += bytes;
      return words;
    }
    HWY_INLINE void prefetch(int point, int points) const {
      if constexpr (prefetches_ahead<float>)
        for (int v = point * VECTORS / points; v < (point + 1) * VECTORS / points; ++v) prefetch_l2_pinned(ahead[v]);
    }
  };
};

/// Computes the scores of the active ranges of a block. Only full vectors are computed, so keys around a range get
/// scores too, but no key beyond `most`.
template <class Mac, class Keys>
HWY_NOINLINE void decode_int8_scores(const DecodeQueries<Mac>& q, const KvRows& head, const Int8Groups& addresses,
                                     StreamPrefetcher& ahead, const ActiveRanges& ranges, int most,
                                     const DecodeScoreRows<float>& to) {
  constexpr int N = lanes<float>;
  for (int g = 0; g < ranges.count; ++g) {
    if (ranges.empty(g)) continue;
    const int end = ranges.key[g + 1];
    for (int key = ranges.key[g] / N * N, vectors; key < end; key += N * vectors) {
      vectors = end - key > N && key + Keys::most * N <= most ? Keys::most : 1;
      ahead.use(N * vectors);
      DecodeQkTile<Mac, Keys>{q, Keys{{head, addresses, ahead, key, (end - 1) / N * N}}}(vectors, to.from(key));
    }
  }
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

/// The loader of int8 keys: four columns of a key are a word.
struct Int8Keys : Int8KeyGroups {
  static constexpr int step = static_cast<int>(KvRows::k_interleave_width);

  template <int VECTORS, int>
  class Reader {
   public:
    HWY_INLINE Reader(const Int8Keys& keys, int vector, int)
        : words_(keys, vector), group_(keys.head.scale_group), stride_(keys.head.scale_stride) {
      // The first next() sets them. GCC for Arm does not see that, and warns.
      ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) scale_[v] = hn::Zero(Tag<float>());
    }
    HWY_INLINE void next() {
      if (column_ == group_end_) {
        ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) scale_[v] = scales_of(words_.scales[v]++);
        group_end_ += group_;
      }
      column_ += step;
      ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) word_[v] = words_.next(v);
    }
    HWY_INLINE Vector<float> column(int v, int i) const { return hn::Mul(byte_of(word_[v], i), scale_[v]); }
    HWY_INLINE void prefetch(int point, int points) const { words_.prefetch(point, points); }

   private:
    /// Returns the scales of a vector of keys.
    HWY_INLINE Vector<float> scales_of(const float* of_first) const {
      const Tag<float> d;
      constexpr int N = lanes<float>;
      if (stride_ == 1) return hn::LoadU(d, of_first);
      alignas(64) float of_keys[N];
      for (int i = 0; i < N; ++i) of_keys[i] = of_first[i * stride_];
      return hn::Load(d, of_keys);
    }

    Words<VECTORS> words_;
    std::int64_t group_, stride_, column_ = 0, group_end_ = 0;
    Vector<float> word_[VECTORS], scale_[VECTORS];
  };
};

/// Computes where a row's columns are in its group: as many columns as a cache line has are adjacent, fewer at the end
/// of the row.
struct ByteColumns {
  std::int64_t columns, scale_group;

  explicit ByteColumns(const KvRows& head) : columns(head.row_stride), scale_group(head.scale_group) {}
  /// Returns the bytes from a row to the next.
  std::int64_t width(std::int64_t column) const {
    const std::int64_t left = columns - column / KvRows::line * KvRows::line;
    return left < KvRows::line ? left : KvRows::line;
  }
  /// Returns the bytes from a group's first byte to a column of its first row.
  static constexpr std::int64_t offset(std::int64_t column) {
    return column / KvRows::line * KvRows::line * KvRows::group_rows + column % KvRows::line;
  }
  /// Returns the index of a column's scale.
  std::int64_t scale_of(std::int64_t column) const { return scale_group >= columns ? 0 : column / scale_group; }
};

/// The int8 values of keys [begin, end) of a block.
struct Int8ValueGroups {
  using Compute = float;
  ByteColumns at;
  // lines prefetched for each key
  template <int VECTORS>
  static constexpr int lines = prefetches_ahead<float> && VECTORS > 1 ? (VECTORS* lanes<float> + 63) / 64 : 0;
  const Int8Groups& addresses;
  StreamPrefetcher& ahead;
  int begin, end;

  /// Adjacent keys of one group. Each loader writes out its loop over them: in a lambda the sums of a register tile
  /// would be in memory.
  struct Keys {
    const std::int8_t* value;  // the first key's row, from a column on
    int count;
    PrefetchAddresses<1> next;  // `lines` lines for each key
  };
  template <int VECTORS>
  HWY_INLINE Keys keys_from(int key, std::int64_t column) const {
    const int first = key % Int8Groups::rows;
    const std::int8_t* value =
        addresses.group[key / Int8Groups::rows] + ByteColumns::offset(column) + first * at.width(column);
    return {value, std::min(Int8Groups::rows - first, end - key),
            take<Int8Groups::rows * lines<VECTORS>, 1>(ahead, value)};
  }
  template <int VECTORS, class Tile>
  HWY_INLINE void prefetching(const Tile& tile) const {
    tile.template operator()<1>();
  }
};

/// The loader of int8 values.
struct Int8Values : Int8ValueGroups {
  template <int ROWS, int VECTORS, int, class F>
  HWY_INLINE void each(int, std::int64_t column, F&& visit) const {
    const Tag<float> d;
    constexpr int N = lanes<float>;
    std::int64_t scale_of[VECTORS];
    ATTN_UNROLL_FOR (int x = 0; x < VECTORS; ++x) scale_of[x] = at.scale_of(column + x * N);
    const std::int64_t stride = at.width(column), scale_stride = addresses.scale_stride;
    for (int key = begin, count; key < end; key += count) {
      Keys group = keys_from<VECTORS>(key, column);
      const std::int8_t* value = group.value;
      const float* scale = addresses.scales_of(key);
      count = group.count;
      for (int n = 0; n < count; ++n, value += stride, scale += scale_stride) {
        Vector<float> values[VECTORS];
        ATTN_UNROLL_FOR (int x = 0; x < VECTORS; ++x)
          values[x] = hn::Mul(widen(d, value + ByteColumns::offset(x * N)), hn::Set(d, scale[scale_of[x]]));
        visit(values, [&](int r) HWY_ATTR { prefetch_share<lines<VECTORS>>(group.next, r, ROWS); });
        group.next.advance(lines<VECTORS>);
      }
    }
  }
  template <int VECTORS>
  static HWY_INLINE void order(Vector<float> (&)[VECTORS]) {}
};

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
