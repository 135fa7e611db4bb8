// src/kernels/attention/tiles/bf16_decode_int8-inl.h: defines the loaders of int8 K and V that are multiplied as bf16,
// which holds int8 exactly.
//
// The loaders read Element::sign_magnitude8: the two bytes of a number's bf16 are looked up by its magnitude, in tables
// of 128. The scale of a key multiplies its score, that of a value its weight (docs/numerics.md section 3.8).
#if defined(ATTN_BF16_DECODE_INT8_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_BF16_DECODE_INT8_INL_H
#undef ATTN_BF16_DECODE_INT8_INL_H
#else
#define ATTN_BF16_DECODE_INT8_INL_H
#endif

#include "kernels/attention/tiles/bf16_decode-inl.h"
#include "kernels/attention/tiles/decode_int8-inl.h"

#if HWY_TARGET == HWY_AVX3
#include <immintrin.h>

#include <array>

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {

/// Returns whether this processor has byte table look-ups (AVX-512 VBMI).
inline bool has_int8_lut() { return __builtin_cpu_supports("avx512vbmi") != 0; }

/// Is ForwardKernel::int8_form: returns sign_magnitude8 if these loaders can read the rows, else i8.
inline Element bf16_byte_form(std::int64_t dim, std::int64_t value_dim, std::int64_t group) {
  const bool registers_take_them = has_int8_lut() && group >= dim && group >= value_dim &&
                                   keys_in_int8_tiles(dim, group) && values_in_int8_tiles(value_dim, group);
  return registers_take_them ? Element::sign_magnitude8 : Element::i8;
}

/// Returns byte `which` (0: the low one) of bf16(0) ... bf16(127).
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

/// Converts 64 numbers of sign_magnitude8 to bf16. Of each group of 16 bytes the first 8 go to `first`, the others to
/// `last`.
class Int8ToBf16Lut {
 public:
  Int8ToBf16Lut()
      : low_{load(low_bytes, 0), load(low_bytes, 64)}, high_{load(high_bytes, 0), load(high_bytes, 64)},
        sign_(_mm512_set1_epi8(-128)) {}
  HWY_INLINE void widen(__m512i bytes, Vector<float>& first, Vector<float>& last) const {
    const __m512i low = of_table(low_, bytes);
    const __m512i high = _mm512_ternarylogic_epi64(of_table(high_, bytes), bytes, sign_, 0xF8);  // a | (b & c)
    first.raw = _mm512_castsi512_ps(_mm512_unpacklo_epi8(low, high));
    last.raw = _mm512_castsi512_ps(_mm512_unpackhi_epi8(low, high));
  }

 private:
  static __m512i load(const std::array<std::uint8_t, 128>& bytes, int at) {
    return _mm512_load_si512(bytes.data() + at);
  }
  /// Looks up the lower seven bits of each byte. Written in assembly, because the rest of the target must run on
  /// processors without AVX-512 VBMI.
  static HWY_INLINE __m512i of_table(const __m512i (&table)[2], __m512i bytes) {
    asm("vpermi2b %2, %1, %0" : "+v"(bytes) : "v"(table[0]), "v"(table[1]));
    return bytes;
  }
  __m512i low_[2], high_[2], sign_;
};

/// The loader of int8 keys for DotPairs. A 32-bit word has four elements of a key, so two pairs; each pair is a column
/// of the tile. The sums do not include the keys' scales.
struct Int8PairKeys : Int8KeyGroups {
  static constexpr int step = static_cast<int>(KvRows::k_interleave_width) / 2;

  template <int VECTORS, int>
  class Reader {
   public:
    HWY_INLINE Reader(const Int8PairKeys& keys, int vector, int) : words_(keys, vector) {}
    HWY_INLINE void next() {
      ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v)
        numbers_.widen(_mm512_shuffle_epi8(_mm512_castps_si512(words_.next(v).raw), by_pairs_), pair_[v][0],
                       pair_[v][1]);
    }
    HWY_INLINE Vector<float> column(int v, int i) const { return pair_[v][i]; }
    HWY_INLINE void prefetch(int point, int points) const { words_.prefetch(point, points); }

   private:
    Int8ToBf16Lut numbers_;
    // of four words, the first pairs come first
    __m512i by_pairs_ = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
    Words<VECTORS> words_;
    Vector<float> pair_[VECTORS][2];
  };
};

/// The loader of int8 values for DotPairs, by pairs of keys from an even one on; the weight of a key beyond the last is
/// 0.
struct Int8PairValues : Int8ValueGroups {
  template <int ROWS, int VECTORS, int, class F>
  HWY_INLINE void each(int, std::int64_t column, F&& visit) const {
    constexpr int pieces = VECTORS / 4;  // groups of 64 columns
    static_assert(VECTORS == 1 || VECTORS % 4 == 0);
    const Int8ToBf16Lut numbers;
    const std::int64_t stride = at.width(column);
    for (int key = begin, count; key < end; key += count) {
      Keys group = keys_from<VECTORS>(key, column);
      const std::int8_t* value = group.value;
      int keys = count = group.count;
      std::int64_t step = stride;
      for (; keys > 0; keys -= 2, value += 2 * stride) {
        if (keys == 1) step = 0;  // an odd last key is paired with itself, with weight 0
        Vector<float> values[VECTORS];
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
        visit(values, [&](int r) HWY_ATTR { prefetch_share<2 * lines<VECTORS>>(group.next, r, ROWS); });
        group.next.advance(2 * lines<VECTORS>);
      }
    }
  }
  /// Reorders each four vectors. Before, the x-th of them has columns 4x ... 4x + 3 of each 16 columns; after, it has
  /// 16 adjacent columns.
  template <int VECTORS>
  static HWY_INLINE void order(Vector<float> (&sum)[VECTORS]) {
    ATTN_UNROLL_FOR (int x = 0; x + 4 <= VECTORS; x += 4) {
      const __m512 a = _mm512_shuffle_f32x4(sum[x].raw, sum[x + 1].raw, 0x44),
                   b = _mm512_shuffle_f32x4(sum[x].raw, sum[x + 1].raw, 0xEE),
                   c = _mm512_shuffle_f32x4(sum[x + 2].raw, sum[x + 3].raw, 0x44),
                   e = _mm512_shuffle_f32x4(sum[x + 2].raw, sum[x + 3].raw, 0xEE);
      sum[x].raw = _mm512_shuffle_f32x4(a, c, 0x88);
      sum[x + 1].raw = _mm512_shuffle_f32x4(a, c, 0xDD);
      sum[x + 2].raw = _mm512_shuffle_f32x4(b, e, 0x88);
      sum[x + 3].raw = _mm512_shuffle_f32x4(b, e, 0xDD);
    }
  }

 private:
  /// Returns the pairs of 16 columns of two rows, `step` bytes apart.
  static HWY_INLINE Vector<float> sixteen(const Int8ToBf16Lut& numbers, const std::int8_t* value, std::int64_t step) {
    const __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(value)),
                  high = _mm_loadu_si128(reinterpret_cast<const __m128i*>(value + step));
    const __m512i both = _mm512_inserti64x4(_mm512_broadcast_i32x4(_mm_unpacklo_epi8(low, high)),
                                            _mm256_broadcastsi128_si256(_mm_unpackhi_epi8(low, high)), 1);
    Vector<float> first, last;
    numbers.widen(both, first, last);
    first.raw = _mm512_mask_blend_ps(0xF0F0, first.raw, last.raw);
    return first;
  }
};

}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
#endif
