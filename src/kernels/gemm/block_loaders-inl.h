// src/kernels/gemm/block_loaders-inl.h: decodes blocks of quantised weights in registers, a vector of columns at
// a time: one loader a format (kernels/block_format.h).
#if defined(ATTN_GEMM_BLOCK_LOADERS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_GEMM_BLOCK_LOADERS_INL_H
#undef ATTN_GEMM_BLOCK_LOADERS_INL_H
#else
#define ATTN_GEMM_BLOCK_LOADERS_INL_H
#endif

#include <hwy/highway.h>

#include "kernels/gemm/operand_types-inl.h"
#include "kernels/gemm/transpose_words-inl.h"
#include "kernels/simd/lanes-inl.h"
#include "kernels/simd/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
namespace hn = hwy::HWY_NAMESPACE;

using Words = Vector<std::uint32_t>;

/// Loads 16 bytes at `at`, at + stride ... into one vector.
template <class D>
HWY_INLINE hn::Vec<D> load_each(D d, const std::uint8_t* at, std::int64_t stride) {
  if constexpr (vector_pieces<D> == 1) {
    return hn::BitCast(d, hn::LoadU(hn::Full128<std::uint8_t>(), at));
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, load_each(half, at + vector_pieces<D> / 2 * stride, stride), load_each(half, at, stride));
  }
}

/// Loads 16 bytes of as many rows as a vector has lanes and transposes them: out[i] holds bytes 4 i to 4 i + 3 of all
/// rows. The bytes may have any address.
HWY_INLINE void load_words(const std::uint8_t* rows, std::int64_t stride, Words (&out)[4]) {
#if HWY_TARGET == HWY_AVX3
  __m512 x[4];
  transpose_four_words(reinterpret_cast<const char*>(rows), stride, x);
  ATTN_UNROLL_FOR (int i = 0; i < 4; ++i) out[i] = Words{_mm512_castps_si512(x[i])};
#else
  const Tag<float> d;
  Vector<float> row[4];
  ATTN_UNROLL_FOR (int i = 0; i < 4; ++i) row[i] = load_each(d, rows + i * stride, 4 * stride);
  const Tag<std::uint32_t> w;
  const Tag<double> pairs;
  const auto low = [&](int a) HWY_ATTR { return hn::BitCast(pairs, hn::InterleaveLower(d, row[a], row[a + 1])); };
  const auto high = [&](int a) HWY_ATTR { return hn::BitCast(pairs, hn::InterleaveUpper(d, row[a], row[a + 1])); };
  out[0] = hn::BitCast(w, hn::InterleaveLower(pairs, low(0), low(2)));
  out[1] = hn::BitCast(w, hn::InterleaveUpper(pairs, low(0), low(2)));
  out[2] = hn::BitCast(w, hn::InterleaveLower(pairs, high(0), high(2)));
  out[3] = hn::BitCast(w, hn::InterleaveUpper(pairs, high(0), high(2)));
#endif
}

HWY_INLINE Words set_words(std::uint32_t x) { return hn::Set(Tag<std::uint32_t>(), x); }
/// Returns byte J of each word.
template <int J>
HWY_INLINE Words byte_of(Words w) {
  if constexpr (J == 3) return hn::ShiftRight<24>(w);
  else return hn::And(hn::ShiftRight<8 * J>(w), set_words(0xff));
}
/// The same of words whose bytes are signed.
template <int J>
HWY_INLINE Vector<std::int32_t> signed_byte_of(Words w) {
  return hn::ShiftRight<24>(hn::BitCast(Tag<std::int32_t>(), hn::ShiftLeft<24 - 8 * J>(w)));
}
HWY_INLINE Vector<float> number(Words w) { return hn::ConvertTo(Tag<float>(), hn::BitCast(Tag<std::int32_t>(), w)); }
HWY_INLINE Vector<float> number(Vector<std::int32_t> w) { return hn::ConvertTo(Tag<float>(), w); }
/// Returns the f16 in the lower half of each word.
HWY_INLINE Vector<float> lower_half(Words w) { return Widened<Element::f16>::of_lower(w); }
HWY_INLINE Vector<float> upper_half(Words w) { return lower_half(hn::ShiftRight<16>(w)); }

/// Takes LESS away from each byte, which is 0 to 63; the results are signed bytes.
template <int LESS>
HWY_INLINE Words less(Words w) {
  const Words high = set_words(0x80808080);  // so that no byte borrows from the next
  return hn::Xor(hn::Sub(hn::Or(w, high), set_words(LESS * 0x01010101u)), high);
}

/// Loads the 16 bytes at `at` of each row as two times 16 numbers of four bits: the low halves are the first 16.
HWY_INLINE void load_nibbles(const std::uint8_t* at, std::int64_t stride, Words (&q)[8]) {
  Words all[4];
  load_words(at, stride, all);
  ATTN_UNROLL_FOR (int i = 0; i < 4; ++i) {
    q[i] = hn::And(all[i], set_words(0x0f0f0f0f));
    q[4 + i] = hn::And(hn::ShiftRight<4>(all[i]), set_words(0x0f0f0f0f));
  }
}
HWY_INLINE void load_bytes(const std::uint8_t* at, std::int64_t stride, Words (&q)[8]) {
  Words low[4], high[4];
  load_words(at, stride, low);
  load_words(at + 16, stride, high);
  ATTN_UNROLL_FOR (int i = 0; i < 4; ++i) q[i] = low[i], q[4 + i] = high[i];
}

// A loader decodes `step` numbers of a vector of rows, which are `stride` bytes apart: part `part` of their blocks.
// Word i has numbers 4 i to 4 i + 3 of each row, as bytes, whose value is byte * scale(i) + least(i). The results have
// the bits of ref/blocks.cc. There the product is rounded before least is added; here both are one operation, which
// gives the same, because the product is exact: a scale of 11 bits, 6 bits, a number of 5 bits.

/// Q8_0
struct EightBits {
  static constexpr int step = 32;
  static constexpr bool is_signed = true;
  Words q[8];
  Vector<float> by;
  HWY_INLINE EightBits(const std::uint8_t* block, std::int64_t stride, int) {
    Words head[4];
    load_words(block, stride, head);
    load_bytes(block + 2, stride, q);
    by = lower_half(head[0]);
  }
  HWY_INLINE Words word(int i) const { return q[i]; }
  HWY_INLINE Vector<float> scale(int) const { return by; }
};

/// Q4_0 and, with a least number, Q4_1.
template <bool LEAST>
struct FourBits {
  static constexpr int step = 32;
  static constexpr bool is_signed = !LEAST;
  Words q[8];
  Vector<float> by, off;
  HWY_INLINE FourBits(const std::uint8_t* block, std::int64_t stride, int) {
    Words head[4];
    load_words(block, stride, head);
    load_nibbles(block + (LEAST ? 4 : 2), stride, q);
    by = lower_half(head[0]);
    off = upper_half(head[0]);
  }
  HWY_INLINE Words word(int i) const { return LEAST ? q[i] : less<8>(q[i]); }
  HWY_INLINE Vector<float> scale(int) const { return by; }
  HWY_INLINE Vector<float> least(int) const { return off; }
};

/// Q5_0 and, with a least number, Q5_1: the fifth bits are a word before the others.
template <bool LEAST>
struct FiveBits {
  static constexpr int step = 32;
  static constexpr bool is_signed = !LEAST;
  Words q[8], fifth;
  Vector<float> by, off;
  HWY_INLINE FiveBits(const std::uint8_t* block, std::int64_t stride, int) {
    Words head[4];
    load_words(block, stride, head);
    load_nibbles(block + (LEAST ? 8 : 6), stride, q);
    by = lower_half(head[0]);
    off = upper_half(head[0]);
    fifth = LEAST ? head[1] : hn::Or(hn::ShiftRight<16>(head[0]), hn::ShiftLeft<16>(head[1]));
  }
  HWY_INLINE Words word(int i) const {
    // the bits 4 i to 4 i + 3, as bit 4 of a byte each: the product is the four bits shifted by 4, 11, 18 and 25,
    // which do not overlap
    const Words bits = hn::And(hn::ShiftRightSame(fifth, 4 * i), set_words(15));
    const Words spread = hn::Mul(bits, set_words(0x02040810));
    const Words w = hn::Or(q[i], hn::And(spread, set_words(0x10101010)));
    return LEAST ? w : less<16>(w);
  }
  HWY_INLINE Vector<float> scale(int) const { return by; }
  HWY_INLINE Vector<float> least(int) const { return off; }
};

/// Q4_K and, with a fifth bit, Q5_K: eight groups of 32, whose scales and least numbers have 6 bits; a part is two of
/// them.
template <bool FIFTH>
struct Groups {
  static constexpr int step = 64;
  static constexpr bool is_signed = false;
  Words q[8], fifth[8];
  Vector<float> by[2], off[2];
  int first;
  HWY_INLINE Groups(const std::uint8_t* block, std::int64_t stride, int part) : first(2 * part) {
    Words head[4];
    load_words(block, stride, head);
    load_bytes(block + (FIFTH ? 48 : 16) + 32 * part, stride, q);
    if constexpr (FIFTH) load_bytes(block + 16, stride, fifth);
    const auto scale = lower_half(head[0]), least = upper_half(head[0]);
    ATTN_UNROLL_FOR (int g = 0; g < 2; ++g) {
      const int shift = (first + g) % 4 * 8;
      const Words a = hn::ShiftRightSame(head[1], shift), b = hn::ShiftRightSame(head[2], shift),
                  high = hn::ShiftRightSame(head[3], shift);
      const Words six = set_words(63), lower = set_words(15), upper = set_words(0x30);
      const bool plain = first < 4;
      const Words its_scale =
                      plain ? hn::And(a, six) : hn::Or(hn::And(high, lower), hn::And(hn::ShiftRight<2>(a), upper)),
                  its_least =
                      plain ? hn::And(b, six)
                            : hn::Or(hn::And(hn::ShiftRight<4>(high), lower), hn::And(hn::ShiftRight<2>(b), upper));
      by[g] = hn::Mul(scale, number(its_scale));
      off[g] = hn::Neg(hn::Mul(least, number(its_least)));
    }
  }
  HWY_INLINE Words word(int i) const {
    const Words w = hn::And(hn::ShiftRightSame(q[i % 8], i / 8 * 4), set_words(0x0f0f0f0f));
    if constexpr (!FIFTH) return w;
    return hn::Or(w, hn::ShiftLeft<4>(hn::And(hn::ShiftRightSame(fifth[i % 8], first + i / 8), set_words(0x01010101))));
  }
  HWY_INLINE Vector<float> scale(int i) const { return by[i / 8]; }
  HWY_INLINE Vector<float> least(int i) const { return off[i / 8]; }
};

/// Q6_K: 16 groups of 16, whose scales have 8 bits; a part is eight groups.
struct SixBits {
  static constexpr int step = 128;
  static constexpr bool is_signed = true;
  Words low[2][8], high[8];
  Vector<float> by[8];
  HWY_INLINE SixBits(const std::uint8_t* block, std::int64_t stride, int part) {
    Words scales[4], last[4];
    load_bytes(block + 64 * part, stride, low[0]);
    load_bytes(block + 64 * part + 32, stride, low[1]);
    load_bytes(block + 128 + 32 * part, stride, high);
    load_words(block + 192, stride, scales);
    load_words(block + 194, stride, last);
    const auto scale = upper_half(last[3]);
    ATTN_UNROLL_FOR (int half = 0; half < 2; ++half) {
      const Words w = part == 0 ? scales[half] : scales[2 + half];
      by[4 * half] = hn::Mul(scale, number(signed_byte_of<0>(w)));
      by[4 * half + 1] = hn::Mul(scale, number(signed_byte_of<1>(w)));
      by[4 * half + 2] = hn::Mul(scale, number(signed_byte_of<2>(w)));
      by[4 * half + 3] = hn::Mul(scale, number(signed_byte_of<3>(w)));
    }
  }
  HWY_INLINE Words word(int i) const {
    const int quarter = i / 8;
    const Words four = hn::And(hn::ShiftRightSame(low[quarter % 2][i % 8], quarter / 2 * 4), set_words(0x0f0f0f0f));
    const Words two = hn::And(hn::ShiftRightSame(high[i % 8], quarter * 2), set_words(0x03030303));
    return less<32>(hn::Or(four, hn::ShiftLeft<4>(two)));
  }
  HWY_INLINE Vector<float> scale(int i) const { return by[i / 4]; }
};

/// Calls run(with<Loader>) for the loader of a format.
template <class Loader>
struct With {
  using Type = Loader;
};
template <class Run>
HWY_INLINE void with_loader(BlockFormat format, const Run& run) {
  switch (format) {
    case BlockFormat::none: return;
    case BlockFormat::q8_0: return run(With<EightBits>());
    case BlockFormat::q4_0: return run(With<FourBits<false>>());
    case BlockFormat::q4_1: return run(With<FourBits<true>>());
    case BlockFormat::q5_0: return run(With<FiveBits<false>>());
    case BlockFormat::q5_1: return run(With<FiveBits<true>>());
    case BlockFormat::q4_k: return run(With<Groups<false>>());
    case BlockFormat::q5_k: return run(With<Groups<true>>());
    case BlockFormat::q6_k: return run(With<SixBits>());
  }
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
