// src/kernels/attention/tiles/bf16_decode_int8-inl.h: QK^T and PV of decode rows over int8 K and V, multiplied as bf16,
// which holds int8 exactly.
//
//   decode    in registers, from Element::sign_magnitude8: the two bytes of a number's bf16 are looked up by its
//             magnitude, in tables of 128
//   prefill   a block of keys at a time, before its products
//
// The scale of a key multiplies its score, that of a value its weight (docs/numerics.md section 3.8).
#if defined(ATTN_BF16_DECODE_INT8_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_BF16_DECODE_INT8_INL_H
#undef ATTN_BF16_DECODE_INT8_INL_H
#else
#define ATTN_BF16_DECODE_INT8_INL_H
#endif

#include "kernels/attention/tiles/bf16_decode-inl.h"
#include "kernels/attention/tiles/decode_int8-inl.h"

#if HWY_TARGET == HWY_AVX3
#include <array>

ATTN_BEFORE_BF16_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {

/// Converts `columns` integers to bf16.
HWY_INLINE void int8_row_to_bf16(const std::int8_t* row, std::int64_t columns, std::uint16_t* to) {
  for (std::int64_t c = 0; c < columns; c += 16) {
    const auto there = first_lanes(columns - c);
    const __m512 numbers = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(there, row + c)));
    _mm256_mask_storeu_epi16(to + c, there, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(numbers)));
  }
}

/// Converts int8 rows before `end` to bf16, `stride` apart.
HWY_NOINLINE inline void int8_rows_to_bf16(const KvRows& head, const KvRowRange& rows, std::int64_t columns,
                                           std::uint16_t* to, std::int64_t stride) {
  for_each_int8_block(head, rows.first, rows.keys, columns,
                      [&](int r, int count, std::int64_t c, std::int64_t width, const Int8Block& block) ATTN_BF16_ATTR {
                        for (int i = 0; i < count; ++i) {
                          if (c == 0) prefetch_row_ahead(head, columns, rows.first + r + i, rows.end);
                          int8_row_to_bf16(block.bytes + i * block.stride, width, to + (r + i) * stride + c);
                        }
                      });
}

/// Copies the scales of rows [first, first + count), one per row, to adjacent memory.
HWY_NOINLINE inline void scales_of_rows(const KvRows& head, std::int64_t first, int count, float* to) {
  for (int r = 0, rows; r < count; r += rows) {
    rows = static_cast<int>(rows_of_page(head, first + r, count - r));
    const float* const scales = scales_at(head, first + r);
    for (int i = 0; i < rows; i += 16) {
      const auto there = first_lanes(rows - i);
      _mm512_mask_storeu_ps(to + r + i, there, _mm512_maskz_loadu_ps(there, scales + i));
    }
  }
}

/// Prefetches the scales: one line per page, for which a load would wait.
HWY_NOINLINE inline void prefetch_scales(const KvRows& head, std::int64_t first, std::int64_t end) {
  for (std::int64_t rows; first < end; first += rows) {
    rows = rows_of_page(head, first, end - first);
    const Address at = address_of(scales_at(head, first));
    for (std::int64_t i = 0; i < rows; i += 16) prefetch_l2(at + 4 * static_cast<Address>(i));
  }
}

/// The scales of a block.
struct BlockScales {
  bool there;  // whether keys and values are int8
  alignas(64) float key[bf16_kv_block], value[bf16_kv_block];

  const float* of_keys(int first = 0) const { return there ? key + first : nullptr; }
  /// 0 for keys that no weight but 0 has: `silent`, or null.
  void load_values(const KvRows& v, std::int64_t first, int keys, const bool* masked) {
    if (!there) return;
    scales_of_rows(v, first, keys, value);
    for (int r = 0; masked && r < keys; ++r)
      if (masked[r]) value[r] = 0;
  }
};

/// Adjacent scales, read 16 at a time.
struct ScalesBy16 {
  const float* at[bf16_kv_block / 16];
  explicit ScalesBy16(const float* scales) {
    for (int n = 0; n < bf16_kv_block / 16; ++n) at[n] = scales + 16 * n;
  }
};

}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#define ATTN_BYTES_TARGET ATTN_BF16_TARGET ",avx512vbmi"
#define ATTN_BYTES_ATTR __attribute__((target(ATTN_BYTES_TARGET)))  // of a lambda
HWY_PUSH_ATTRIBUTES(ATTN_BYTES_TARGET)
namespace attn::kernels::HWY_NAMESPACE {

/// Returns whether this processor has byte table look-ups.
inline bool has_int8_lut() { return __builtin_cpu_supports("avx512vbmi") != 0; }

/// ForwardKernel::int8_form of rows that are multiplied from registers.
inline Element bf16_byte_form(std::int64_t dim, std::int64_t value_dim, std::int64_t group) {
  const bool registers_take_them = has_int8_lut() && group >= dim && group >= value_dim &&
                                   keys_in_int8_tiles(dim, group) && values_in_int8_tiles(value_dim, group);
  return registers_take_them ? Element::sign_magnitude8 : Element::i8;
}

/// Byte `which` of bf16(0) ... bf16(127).
constexpr std::array<std::uint8_t, 128> bytes_of_numbers(int which) {
  std::array<std::uint8_t, 128> bytes{};
  for (int n = 1, exponent = 127; n < 128; ++n) {
    if (n >= 2 << (exponent - 127)) ++exponent;
    const int bits = exponent << 7 | (n << (134 - exponent) & 127);
    bytes[static_cast<std::size_t>(n)] = static_cast<std::uint8_t>(which == 0 ? bits & 255 : bits >> 8);
  }
  return bytes;
}
alignas(64) inline constexpr std::array<std::uint8_t, 128> low_bytes = bytes_of_numbers(0), high_bytes =
                                                                                                bytes_of_numbers(1);

/// 64 numbers of sign_magnitude8 as bf16; within each group of 16 bytes the first 8 of them to `first`, the others to
/// `last`.
class Int8ToBf16Lut {
 public:
  Int8ToBf16Lut()
      : low_{load(low_bytes, 0), load(low_bytes, 64)}, high_{load(high_bytes, 0), load(high_bytes, 64)},
        sign_(_mm512_set1_epi8(-128)) {}
  HWY_INLINE void widen(__m512i bytes, __m512i& first, __m512i& last) const {
    const __m512i low = _mm512_permutex2var_epi8(low_[0], bytes, low_[1]);  // by the lower seven bits
    // a | (b & c)
    const __m512i high =
        _mm512_ternarylogic_epi64(_mm512_permutex2var_epi8(high_[0], bytes, high_[1]), bytes, sign_, 0xF8);
    first = _mm512_unpacklo_epi8(low, high);
    last = _mm512_unpackhi_epi8(low, high);
  }

 private:
  static __m512i load(const std::array<std::uint8_t, 128>& bytes, int at) {
    return _mm512_load_si512(bytes.data() + at);
  }
  __m512i low_[2], high_[2], sign_;
};

/// Bf16DecodeQkTile for int8 keys, of which the sums are stored as they are.
struct Bf16DecodeQkInt8Tile {
  static constexpr bool wide = true;
  const std::uint32_t* q;  // [pairs][max_decode_rows]
  std::int64_t columns;
  const ByteKeys& found;
  int key;                        // the first of them in the block
  const Int8GroupCursor& cursor;  // of the keys

  template <int ROWS, int VECTORS>
  HWY_NOINLINE void operator()(const float* const* keys, std::int64_t, int row, float* scores,
                               std::int64_t to_stride) const {
    const Int8ToBf16Lut numbers;
    // of four words: first halves first
    const __m512i by_pairs =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
    __m512 sum[ROWS][VECTORS];
    const float* words[VECTORS];
    Address ahead[VECTORS];
    ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) {
      words[v] = keys[v];
      ahead[v] = to_prefetched(cursor, key + static_cast<int>(keys - found + v) * 16, row);
    }
    ATTN_UNROLL_FOR (int r = 0; r < ROWS; ++r)
      ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) sum[r][v] = _mm512_setzero_ps();
    const std::uint32_t* of_rows = q + row;
    for (std::int64_t c = 0; c < columns;
         c += KvRows::k_interleave_width, of_rows += KvRows::k_interleave_width / 2 * max_decode_rows) {
      __m512i pair[2][VECTORS];
      ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v)
        numbers.widen(_mm512_shuffle_epi8(_mm512_loadu_si512(words[v]), by_pairs), pair[0][v], pair[1][v]);
      ATTN_UNROLL_FOR (int half = 0; half < 2; ++half)
        ATTN_UNROLL_FOR (int r = 0; r < ROWS; ++r) {
          const __m512i x = _mm512_set1_epi32(static_cast<int>(of_rows[half * max_decode_rows + r]));
          ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) sum[r][v] = dot_pair(sum[r][v], pair[half][v], x);
          prefetch_share_of<VECTORS>([&](int i) { return address_of(words[i]) + ahead[i]; }, half * ROWS + r, 2 * ROWS);
        }
      ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) words[v] += KvRows::group_rows;
    }
    ATTN_UNROLL_FOR (int r = 0; r < ROWS; ++r)
      ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v)
        _mm512_storeu_ps(scores + (row + r) * to_stride + v * 16, sum[r][v]);
  }
};

/// Bf16DecodePvTile for int8 values: keys [begin, end) of a block, of an even one on; the weight of a key beyond
/// the last is 0.
struct Bf16DecodePvInt8Tile {
  ByteColumns at;
  const Int8GroupCursor& cursor;  // of the values
  int begin, end;
  DecodeWeightPairs p;
  DecodeWeightSum weight_sum;
  PvEpilogue<float> epilogue;

  template <int ROWS, int VECTORS>
  HWY_NOINLINE void operator()(int row, std::int64_t column, float* o) const {
    constexpr int pieces = VECTORS / 4, lines = pieces == 0 ? 2 : 2 * pieces;  // of 64 columns
    static_assert(VECTORS == 1 || VECTORS % 4 == 0);
    const Int8ToBf16Lut numbers;
    Vector<float> sum[ROWS][VECTORS];
    epilogue.start(o, sum);
    const std::uint32_t* weights = p.p + row * p.row_stride;
    const std::int64_t stride = at.width(column), of_pair = p.stride, of_row = p.row_stride;
    DecodeWeightSum adds = weight_sum.of_tile(row == 0 && column == 0, epilogue.begins);
    for_each_byte_group(begin, end, [&](int key, int keys, int first) ATTN_BYTES_ATTR {
      const std::int8_t* value = cursor.group(key) + ByteColumns::offset(column) + first * stride;
      const Address ahead = to_prefetched(cursor, key, row);
      std::int64_t step = stride;
      for (; keys > 0; keys -= 2, value += 2 * stride, weights += of_pair) {
        adds.add();
        if (keys == 1) step = 0;  // a key without another: itself, with weight 0
        __m512i values[VECTORS];
        if constexpr (VECTORS == 1) {
          values[0] = sixteen(numbers, value, step);
        } else {
          ATTN_UNROLL_FOR (int x = 0; x < pieces; ++x) {
            const std::int8_t* const place = value + ByteColumns::offset(64 * x);
            const __m512i low = _mm512_loadu_si512(place), high = _mm512_loadu_si512(place + step);
            numbers.widen(_mm512_unpacklo_epi8(low, high), values[4 * x], values[4 * x + 1]);
            numbers.widen(_mm512_unpackhi_epi8(low, high), values[4 * x + 2], values[4 * x + 3]);
          }
        }
        ATTN_UNROLL_FOR (int r = 0; r < ROWS; ++r) {
          const __m512i weight = _mm512_set1_epi32(static_cast<int>(weights[r * of_row]));
          ATTN_UNROLL_FOR (int x = 0; x < VECTORS; ++x) sum[r][x].raw = dot_pair(sum[r][x].raw, values[x], weight);
          prefetch_share_of<lines>(
              [&](int i) { return address_of(value + ByteColumns::offset(i / 2 * 64) + i % 2 * stride) + ahead; }, r,
              ROWS);
        }
      }
    });
    if (epilogue.ends && VECTORS > 1)
      ATTN_UNROLL_FOR (int r = 0; r < ROWS; ++r)
        ATTN_UNROLL_FOR (int x = 0; x < pieces; ++x) in_order_of_64(sum[r] + 4 * x);
    adds.end();
    epilogue.finish(row, o, sum);
  }

 private:
  /// Pairs of 16 columns.
  static HWY_INLINE __m512i sixteen(const Int8ToBf16Lut& numbers, const std::int8_t* value, std::int64_t step) {
    const __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(value)),
                  high = _mm_loadu_si128(reinterpret_cast<const __m128i*>(value + step));
    const __m512i both = _mm512_inserti64x4(_mm512_broadcast_i32x4(_mm_unpacklo_epi8(low, high)),
                                            _mm256_broadcastsi128_si256(_mm_unpackhi_epi8(low, high)), 1);
    __m512i first, last;
    numbers.widen(both, first, last);
    return _mm512_mask_blend_epi32(0xF0F0, first, last);
  }
  /// Four vectors of which the x-th has columns 4x ... 4x + 3 of each 16, to vectors of neighbouring columns.
  static HWY_INLINE void in_order_of_64(Vector<float>* x) {
    const __m512 a = _mm512_shuffle_f32x4(x[0].raw, x[1].raw, 0x44), b = _mm512_shuffle_f32x4(x[0].raw, x[1].raw, 0xEE);
    const __m512 c = _mm512_shuffle_f32x4(x[2].raw, x[3].raw, 0x44), e = _mm512_shuffle_f32x4(x[2].raw, x[3].raw, 0xEE);
    x[0].raw = _mm512_shuffle_f32x4(a, c, 0x88);
    x[1].raw = _mm512_shuffle_f32x4(a, c, 0xDD);
    x[2].raw = _mm512_shuffle_f32x4(b, e, 0x88);
    x[3].raw = _mm512_shuffle_f32x4(b, e, 0xDD);
  }
};

}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#undef ATTN_BYTES_ATTR
#undef ATTN_BYTES_TARGET
#endif
#endif
