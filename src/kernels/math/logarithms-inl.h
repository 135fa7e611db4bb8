// src/kernels/math/logarithms-inl.h: computes exp2 of any number, the natural logarithm, sine and cosine in vectors, by
// the steps of kernels/ref, so with the same bits.
#if defined(ATTN_LOGARITHMS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_LOGARITHMS_INL_H
#undef ATTN_LOGARITHMS_INL_H
#else
#define ATTN_LOGARITHMS_INL_H
#endif

#include <hwy/highway.h>

#include "kernels/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE hn::Vec<D> exp2(D d, hn::Vec<D> x) {
  using T = hn::TFromD<D>;
  using C = Constants<T>;
  const auto y = hn::IfThenElse(hn::Ge(x, hn::Set(d, T(C::bias + 1))), infinity(d), exp2_of_negative(d, x));
  return hn::IfThenElse(hn::Eq(x, x), y, x);
}

/// Returns NaN where x < 0, because a logarithm is not defined there, and y elsewhere; -0 is not below 0.
template <class D>
HWY_INLINE hn::Vec<D> undefined_below_zero(D d, hn::Vec<D> x, hn::Vec<D> y) {
  return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Set(d, std::numeric_limits<hn::TFromD<D>>::quiet_NaN()), y);
}

/// Computes the natural logarithm in f64.
template <class D>
HWY_INLINE hn::Vec<D> log_f64(D d, hn::Vec<D> x) {
  using C = Constants<double>;
  const hn::RebindToSigned<D> di;
  const hn::RebindToUnsigned<D> du;
  const auto small = hn::Lt(x, hn::Set(d, 0x1p-1022));
  const auto bits = hn::BitCast(di, hn::IfThenElse(small, hn::Mul(x, hn::Set(d, 0x1p54)), x));
  // an arithmetic right shift by 52, which AVX2 lacks for 64 bits: 2^62 is added before a logical shift, and 2^10 is
  // subtracted after it
  const auto difference = hn::Sub(bits, hn::BitCast(di, hn::Set(d, C::sqrt_half)));
  const auto biased = hn::ShiftRight<52>(hn::BitCast(du, hn::Add(difference, hn::Set(di, std::int64_t{1} << 62))));
  const auto e = hn::Sub(hn::BitCast(di, biased), hn::Set(di, std::int64_t{1} << 10));
  const auto f = hn::Sub(hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<52>(e))), hn::Set(d, 1.0));
  const auto half_square = hn::Mul(hn::Mul(hn::Set(d, 0.5), f), f);
  const auto s = hn::Div(f, hn::Add(hn::Set(d, 2.0), f)), z = hn::Mul(s, s);
  const auto rest = hn::Mul(s, hn::MulAdd(z, horner(d, C::log, z), half_square));
  const auto magic = hn::Set(d, C::rounder);
  const auto whole = hn::Sub(hn::BitCast(d, hn::Add(hn::BitCast(di, magic), e)), magic);
  const auto exponent = hn::Sub(whole, hn::IfThenElseZero(small, hn::Set(d, 54.0)));
  const auto low = hn::MulAdd(exponent, hn::Set(d, C::ln2_low), rest);
  auto y = hn::MulAdd(exponent, hn::Set(d, C::ln2_high), hn::Sub(f, hn::Sub(half_square, low)));
  y = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Neg(infinity(d)), y);
  return undefined_below_zero(d, x, hn::IfThenElse(hn::Lt(x, infinity(d)), y, x));
}

/// Computes sine (quarter_turns 0) or cosine (1) in f64 for |x| < 2^20, by the reduction and the polynomials of
/// kernels/ref/trigonometry.h.
template <class D>
HWY_INLINE hn::Vec<D> sine_of_turn(D d, hn::Vec<D> x, std::int64_t quarter_turns) {
  using C = Constants<double>;
  const hn::RebindToSigned<D> di;
  const auto rounder = hn::Set(d, C::rounder);
  const auto shifted = hn::MulAdd(x, hn::Set(d, 0x1.45f306dc9c883p-1), rounder), n = hn::Sub(shifted, rounder);
  const auto first = hn::Sub(x, hn::Mul(n, hn::Set(d, 0x1.921fb544p+0))),
             second = hn::Mul(n, hn::Set(d, 0x1.0b4611a6p-34));
  const auto difference = hn::Sub(first, second), back = hn::Sub(difference, first);
  const auto error = hn::Sub(hn::Sub(first, hn::Sub(difference, back)), hn::Add(second, back));
  const auto reduced = hn::NegMulAdd(n, hn::Set(d, 0x1.3198a2e037073p-69), error);
  const auto high = hn::Add(difference, reduced), low = hn::Add(hn::Sub(difference, high), reduced);
  const auto quadrant = hn::Add(hn::BitCast(di, shifted), hn::Set(di, quarter_turns));
  const auto z = hn::Mul(high, high);
  const auto tail = hn::MulAdd(hn::Mul(hn::Set(d, -0.5), z), low, low);
  const auto sine = hn::Add(high, hn::MulAdd(hn::Mul(high, z), horner(d, C::sin, z), tail));
  const auto half = hn::Mul(hn::Set(d, 0.5), z), one = hn::Set(d, 1.0), lead = hn::Sub(one, half);
  const auto rest = hn::MulAdd(hn::Mul(z, z), horner(d, C::cos, z), hn::Mul(hn::Neg(high), low));
  const auto cosine = hn::Add(lead, hn::Add(hn::Sub(hn::Sub(one, lead), half), rest));
  const auto bit = [&](std::int64_t which) HWY_ATTR {
    return hn::RebindMask(d, hn::Ne(hn::And(quadrant, hn::Set(di, which)), hn::Zero(di)));
  };
  const auto y = hn::IfThenElse(bit(1), cosine, sine);
  const auto negated = hn::IfThenElse(bit(2), hn::Neg(y), y);
  return quarter_turns == 0 ? hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, negated) : negated;
}

/// Computes f(x) in f64 and rounds the result once to x's type; f takes the tag and the vector of f64.
template <class D, typename F>
HWY_INLINE hn::Vec<D> by_f64(D d, hn::Vec<D> x, F f) {
  if constexpr (sizeof(hn::TFromD<D>) == 8) {
    return f(d, x);
  } else {
    const hn::Half<D> half;
    const hn::Rebind<double, hn::Half<D>> wide;
    const auto lower = hn::DemoteTo(half, f(wide, hn::PromoteTo(wide, hn::LowerHalf(half, x))));
    const auto upper = hn::DemoteTo(half, f(wide, hn::PromoteTo(wide, hn::UpperHalf(half, x))));
    return hn::Combine(d, upper, lower);
  }
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
