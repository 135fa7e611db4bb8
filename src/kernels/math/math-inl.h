// src/kernels/math/math-inl.h: computes the functions of kernels/ref/math.h in vectors: the same steps, so the same
// bits.
#if defined(ATTN_MATH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_MATH_INL_H
#undef ATTN_MATH_INL_H
#else
#define ATTN_MATH_INL_H
#endif

#include <hwy/highway.h>

#include <limits>
#include <type_traits>

// The constants of the reference code. It is built twice, with and without FMA instructions; both builds have the same
// constants.
#define ATTN_REF_NAMESPACE ref_generic
#include "kernels/math/polynomial_coefficients.h"
#undef ATTN_REF_NAMESPACE

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
namespace hn = hwy::HWY_NAMESPACE;
using ref_generic::Constants;

template <class D, int count>
HWY_INLINE hn::Vec<D> horner(D d, const hn::TFromD<D> (&c)[count], hn::Vec<D> x) {
  auto p = hn::Set(d, c[count - 1]);
  _Pragma("GCC unroll 32") for (int i = count - 2; i >= 0; --i) p = hn::MulAdd(p, x, hn::Set(d, c[i]));
  return p;
}

template <class D>
HWY_INLINE hn::Vec<D> infinity(D d) {
  return hn::Set(d, std::numeric_limits<hn::TFromD<D>>::infinity());
}

/// Computes 2^x for x below 128 (f64: 1,024) and NaN; a softmax needs only x <= 0. +0 below the smallest normal number.
template <class D>
HWY_INLINE hn::Vec<D> exp2_of_negative(D d, hn::Vec<D> x) {
  using T = hn::TFromD<D>;
  using C = Constants<T>;
#if HWY_TARGET == HWY_AVX3
  // fewer steps with the same result: AVX-512 has instructions for x minus its nearest integer, and for scaling by 2^n
  if constexpr (sizeof(T) == 4 && HWY_LANES(T) == 16) {
    const __m512 f = _mm512_reduce_ps(x.raw, 0);
    const auto p = horner(d, C::exp2, hn::Vec<D>{f});
    const __mmask16 large = _mm512_cmp_ps_mask(x.raw, _mm512_set1_ps(C::least_exponent), _CMP_NLT_UQ);
    return hn::Vec<D>{_mm512_maskz_scalef_ps(large, p.raw, _mm512_sub_ps(x.raw, f))};
  }
#endif
  const hn::RebindToSigned<D> di;
  const auto rounder = hn::Set(d, C::rounder);
  const auto shifted = hn::Add(x, rounder);
  const auto p = horner(d, C::exp2, hn::Sub(x, hn::Sub(shifted, rounder)));
  const auto scaled = hn::Add(hn::BitCast(di, p), hn::ShiftLeft<C::mantissa_bits>(hn::BitCast(di, shifted)));
  const auto y = hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, C::least_exponent)), hn::BitCast(d, scaled));
  // A NaN whose low mantissa bits are not 0 would become a number: the shift moves them into the exponent.
  return hn::IfThenElse(hn::Eq(x, x), y, x);
}

/// Computes 2^n; n must be the exponent of a normal number.
template <class D, class VI>
HWY_INLINE hn::Vec<D> power_of_two(D d, VI n) {
  using C = Constants<hn::TFromD<D>>;
  const hn::RebindToSigned<D> di;
  return hn::BitCast(
      d, hn::ShiftLeft<C::mantissa_bits>(hn::Add(n, hn::Set(di, static_cast<typename C::Signed>(C::bias)))));
}

/// The parts of e^x = p 2^n, for x within [exp_lowest, exp_highest]. The low bits of `shifted` hold n as an integer.
template <class V>
struct ExpParts {
  V p, n, shifted;
};
template <class D>
HWY_INLINE ExpParts<hn::Vec<D>> exp_parts(D d, hn::Vec<D> x) {
  using C = Constants<hn::TFromD<D>>;
  const auto rounder = hn::Set(d, C::rounder);
  const auto shifted = hn::MulAdd(x, hn::Set(d, C::log2e), rounder), n = hn::Sub(shifted, rounder);
  const auto r = hn::NegMulAdd(n, hn::Set(d, C::ln2_low), hn::NegMulAdd(n, hn::Set(d, C::ln2_high), x));
  return {horner(d, C::exp, r), n, shifted};
}

#if HWY_TARGET == HWY_AVX3
// Computes p 2^n, rounded once, in one instruction; the result is that of multiplying by two powers of two whose
// product is 2^n. Lanes not in `kept` are 0, whatever p and n are.
HWY_INLINE hn::Vec<hn::ScalableTag<float>> scaled(const ExpParts<hn::Vec<hn::ScalableTag<float>>>& e, __mmask16 kept) {
  return hn::Vec<hn::ScalableTag<float>>{_mm512_maskz_scalef_ps(kept, e.p.raw, e.n.raw)};
}
HWY_INLINE hn::Vec<hn::ScalableTag<double>> scaled(const ExpParts<hn::Vec<hn::ScalableTag<double>>>& e, __mmask8 kept) {
  return hn::Vec<hn::ScalableTag<double>>{_mm512_maskz_scalef_pd(kept, e.p.raw, e.n.raw)};
}
template <class D>
constexpr bool has_scaled = std::is_same_v<hn::Vec<D>, hn::Vec<hn::ScalableTag<float>>> ||
                            std::is_same_v<hn::Vec<D>, hn::Vec<hn::ScalableTag<double>>>;
#endif

/// Computes e^x for x within [exp_lowest, exp_highest].
template <class D>
HWY_INLINE hn::Vec<D> exp_within(D d, hn::Vec<D> x) {
  using C = Constants<hn::TFromD<D>>;
  const hn::RebindToSigned<D> di;
  const auto e = exp_parts(d, x);
  // n as an integer
  const auto whole = hn::Sub(hn::BitCast(di, e.shifted), hn::BitCast(di, hn::Set(d, C::rounder))),
             half = hn::ShiftRight<1>(whole);
  return hn::Mul(hn::Mul(e.p, power_of_two(d, half)), power_of_two(d, hn::Sub(whole, half)));
}

/// Computes e^x for x up to exp_highest; 0 below exp_lowest; if x is NaN, the result is an arbitrary number.
template <class D>
HWY_INLINE hn::Vec<D> exp_up_to_highest(D d, hn::Vec<D> x) {
  const auto vanishes = hn::Lt(x, hn::Set(d, Constants<hn::TFromD<D>>::exp_lowest));
#if HWY_TARGET == HWY_AVX3
  if constexpr (has_scaled<D>) return scaled(exp_parts(d, x), hn::Not(vanishes).raw);
#endif
  // lanes that vanish compute e^0: e^exp_lowest would be a denormal, which is slow
  return hn::IfThenZeroElse(vanishes, exp_within(d, hn::IfThenZeroElse(vanishes, x)));
}

template <class D>
HWY_INLINE hn::Vec<D> exp(D d, hn::Vec<D> x) {
  using C = Constants<hn::TFromD<D>>;
  auto y = exp_up_to_highest(d, hn::Min(x, hn::Set(d, C::exp_highest)));
  y = hn::IfThenElse(hn::Gt(x, hn::Set(d, C::exp_highest)), infinity(d), y);
  return hn::IfThenElse(hn::Eq(x, x), y, x);
}

template <class D>
HWY_INLINE hn::Vec<D> tanh(D d, hn::Vec<D> x) {
  using T = hn::TFromD<D>;
  const auto a = hn::Abs(x), z = hn::Mul(a, a), one = hn::Set(d, T(1));
  const auto near = hn::MulAdd(hn::Mul(a, z), horner(d, Constants<T>::tanh, z), a);
  const auto far = hn::Sub(one, hn::Div(hn::Set(d, T(2)), hn::Add(exp(d, hn::Add(a, a)), one)));
  return hn::CopySign(hn::IfThenElse(hn::Lt(a, hn::Set(d, T(0.625))), near, far), x);
}

/// Computes log2 of x > 0 (and NaN, inf, 0) in f64.
template <class D>
HWY_INLINE hn::Vec<D> log2_f64(D d, hn::Vec<D> x) {
  using C = Constants<double>;
  const hn::RebindToSigned<D> di;
  const auto small = hn::Lt(x, hn::Set(d, 0x1p-1022));
  const auto scaled = hn::IfThenElse(small, hn::Mul(x, hn::Set(d, 0x1p54)), x);
  const auto offset = hn::IfThenElseZero(small, hn::Set(d, 54.0));
  const auto bits = hn::BitCast(di, scaled);
  // AVX2 has no arithmetic right shift of 64 bits: 2^62 is added, which makes the difference positive, then a logical
  // shift by 52 is followed by a subtraction of 2^10
  const auto root = hn::BitCast(di, hn::Set(d, C::sqrt_half));
  const auto difference = hn::Sub(bits, root);
  const hn::RebindToUnsigned<D> du;
  const auto biased = hn::ShiftRight<52>(hn::BitCast(du, hn::Add(difference, hn::Set(di, std::int64_t{1} << 62))));
  const auto e = hn::Sub(hn::BitCast(di, biased), hn::Set(di, std::int64_t{1} << 10));
  const auto f = hn::Sub(hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<52>(e))), hn::Set(d, 1.0));
  const auto half_square = hn::Mul(hn::Mul(hn::Set(d, 0.5), f), f);
  const auto s = hn::Div(f, hn::Add(hn::Set(d, 2.0), f)), z = hn::Mul(s, s);
  const auto rest = hn::Mul(s, hn::MulAdd(z, horner(d, C::log, z), half_square));
  // converts an integer below 2^51 to f64 by the bits of 1.5 * 2^52 + e
  const auto magic = hn::Set(d, C::rounder);
  const auto exponent = hn::Sub(hn::Sub(hn::BitCast(d, hn::Add(hn::BitCast(di, magic), e)), magic), offset);
  const auto high = hn::Sub(f, half_square), low = hn::Add(hn::Sub(hn::Sub(f, high), half_square), rest);
  const auto log2e = hn::Set(d, C::log2e);
  const auto product = hn::Mul(high, log2e);
  const auto remainder =
      hn::Add(hn::MulSub(high, log2e, product), hn::MulAdd(low, log2e, hn::Mul(high, hn::Set(d, C::log2e_low))));
  const auto sum = hn::Add(exponent, product);
  auto y = hn::Add(sum, hn::Add(hn::Add(hn::Sub(exponent, sum), product), remainder));
  y = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Neg(infinity(d)), y);
  return hn::IfThenElse(hn::And(hn::Eq(x, x), hn::Lt(x, infinity(d))), y, x);
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
