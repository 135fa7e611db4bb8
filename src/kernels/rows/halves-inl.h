// src/kernels/rows/halves-inl.h: converts contiguous bf16 and f16 to f32 and back, with the bits of kernels/half.h.
#if defined(ATTN_ROWS_HALVES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_ROWS_HALVES_INL_H
#undef ATTN_ROWS_HALVES_INL_H
#else
#define ATTN_ROWS_HALVES_INL_H
#endif

#include <hwy/highway.h>

#include "kernels/rows/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
namespace hn = hwy::HWY_NAMESPACE;

// Conversions use integer arithmetic, except for denormals and for f32 to f16 on x86: when widening, the processor's
// conversion would make signalling NaNs quiet, which changes their bits.
using Words = hn::ScalableTag<std::uint32_t>;
using Word = hn::Vec<Words>;
using HalfWords = hn::Rebind<std::uint16_t, Words>;

HWY_INLINE Word below_bits(Words d, int bits) { return hn::Set(d, (std::uint32_t{1} << bits) - 1); }

struct WidenBf16 {
  HWY_INLINE Word operator()(Words, Word half) const { return hn::ShiftLeft<16>(half); }
};

struct WidenF16 {
  HWY_INLINE Word operator()(Words d, Word half) const {
    const hn::RebindToFloat<Words> df;
    const Word rebase = hn::Set(d, 112u << 23), infinite = hn::Set(d, 0x1fu << 23);
    const Word magnitude = hn::ShiftLeft<13>(hn::And(half, below_bits(d, 15)));
    const Word exponent = hn::And(magnitude, infinite);
    Word wide = hn::Add(magnitude, rebase);
    wide = hn::IfThenElse(hn::Eq(exponent, infinite), hn::Add(wide, rebase), wide);
    // a denormal is an integer multiple of 2^-24
    const auto multiple = hn::Mul(hn::ConvertTo(df, hn::ShiftRight<13>(magnitude)), hn::Set(df, 0x1p-24f));
    wide = hn::IfThenElse(hn::Eq(exponent, hn::Zero(d)), hn::BitCast(d, multiple), wide);
    return hn::Or(wide, hn::ShiftLeft<16>(hn::AndNot(below_bits(d, 15), half)));
  }
};

/// Computes value / 2^shift, rounded to nearest even.
template <int shift>
HWY_INLINE Word shift_to_nearest_even(Words d, Word value) {
  const Word odd = hn::And(hn::ShiftRight<shift>(value), below_bits(d, 1));
  return hn::ShiftRight<shift>(hn::Add(value, hn::Add(below_bits(d, shift - 1), odd)));
}

struct NarrowBf16 {
  HWY_INLINE Word operator()(Words d, Word wide) const {
    const Word quiet = hn::Or(hn::ShiftRight<16>(wide), hn::Set(d, 0x40u));
    const auto is_nan = hn::Gt(hn::And(wide, below_bits(d, 31)), hn::Set(d, 0x7f800000u));
    return hn::IfThenElse(is_nan, quiet, shift_to_nearest_even<16>(d, wide));
  }
};

struct NarrowF16 {
  HWY_INLINE Word operator()(Words d, Word wide) const {
    const hn::RebindToFloat<Words> df;
#if HWY_ARCH_X86  // the processor's conversion has the same bits, also for NaN
    return hn::PromoteTo(
        d, hn::BitCast(HalfWords(), hn::DemoteTo(hn::Rebind<hwy::float16_t, Words>(), hn::BitCast(df, wide))));
#else
    const Word magnitude = hn::And(wide, below_bits(d, 31));
    Word half = shift_to_nearest_even<13>(d, hn::Sub(magnitude, hn::Set(d, 112u << 23)));
    // numbers below 2^-14 become denormals: adding 1/2, whose last bit is 2^-24, rounds them to a multiple of 2^-24
    const auto denormal = hn::Add(hn::BitCast(df, magnitude), hn::Set(df, 0.5f));
    half = hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 0x38800000u)),
                          hn::Sub(hn::BitCast(d, denormal), hn::Set(d, 0x3f000000u)), half);
    // 65520 and above become infinite
    half = hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 0x477ff000u)), half, hn::Set(d, 0x7c00u));
    const Word quiet = hn::Or(hn::Set(d, 0x7e00u), hn::And(hn::ShiftRight<13>(wide), below_bits(d, 10)));
    half = hn::IfThenElse(hn::Gt(magnitude, hn::Set(d, 0x7f800000u)), quiet, half);
    return hn::Or(half, hn::ShiftRight<16>(hn::AndNot(below_bits(d, 31), wide)));
#endif
  }
};

template <typename F>
HWY_NOINLINE void widen_by(F f, const std::uint16_t* x, std::uint32_t* y, std::int64_t n) {
  const Words d;
  const HalfWords dh;
  constexpr std::int64_t N = HWY_LANES(std::uint32_t);
  std::int64_t i = 0;
  for (; i + N <= n; i += N) hn::StoreU(f(d, hn::PromoteTo(d, hn::LoadU(dh, x + i))), d, y + i);
  if (i == n) return;
  alignas(64) std::uint16_t edge[N] = {};
  std::memcpy(edge, x + i, sizeof(std::uint16_t) * static_cast<std::size_t>(n - i));
  store_some(d, f(d, hn::PromoteTo(d, hn::Load(dh, edge))), y + i, n - i);
}

template <typename F>
HWY_NOINLINE void narrow_by(F f, const std::uint32_t* x, std::uint16_t* y, std::int64_t n) {
  const Words d;
  const HalfWords dh;
  constexpr std::int64_t N = HWY_LANES(std::uint32_t);
  std::int64_t i = 0;
  for (; i + N <= n; i += N) hn::StoreU(hn::TruncateTo(dh, f(d, hn::LoadU(d, x + i))), dh, y + i);
  if (i == n) return;
  alignas(64) std::uint16_t edge[N];
  hn::Store(hn::TruncateTo(dh, f(d, load_some(d, x + i, n - i))), dh, edge);
  std::memcpy(y + i, edge, sizeof(std::uint16_t) * static_cast<std::size_t>(n - i));
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
