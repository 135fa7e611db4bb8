// src/kernels/math/additive_exp-inl.h: computes e^2x as mantissa and exponent, for additive scores, with the bits of
// kernels/ref/additive.h.
#if defined(ATTN_ADDITIVE_EXP_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_ADDITIVE_EXP_INL_H
#undef ATTN_ADDITIVE_EXP_INL_H
#else
#define ATTN_ADDITIVE_EXP_INL_H
#endif

#include <cstring>

#include "kernels/simd/lanes-inl.h"
#include "kernels/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// The tag of as many f32 as a vector holds f64, because the split is computed in f64.
using SplitTag = hn::Rebind<float, Tag<double>>;
inline constexpr int split_lanes = lanes<double>;

/// If no exponent exceeds this (in absolute value), H = high 2^exponent and the product of two H are within f32's
/// range.
inline constexpr float narrow_exponent = 63.0f;

/// Computes 2^n for integers n within [-126, 127]; for other n the result is arbitrary.
template <class D>
HWY_INLINE hn::Vec<D> two_to(D d, hn::Vec<D> n) {
  const hn::RebindToSigned<D> di;
  const auto biased = hn::Add(n, hn::Set(d, Constants<float>::rounder + 127.0f));  // the lowest bits hold n + 127
  return hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, biased)));
}

/// e^2x = (high + low) 2^exponent, high in about [0.707, 1.414]; |x| is clamped to 2^22. For NaN high is NaN and
/// exponent 0.
struct SplitVector {
  hn::Vec<SplitTag> high, low, exponent;
};
HWY_INLINE SplitVector split_exp(hn::Vec<SplitTag> x) {
  using C = Constants<double>;
  const Tag<double> d;
  const SplitTag narrow;
  const auto wide = hn::PromoteTo(d, x), rounder = hn::Set(d, C::rounder);
  const auto cut = hn::Min(hn::Max(wide, hn::Set(d, -0x1p22)), hn::Set(d, 0x1p22)), y = hn::Add(cut, cut);
  const auto n = hn::Sub(hn::MulAdd(y, hn::Set(d, C::log2e), rounder), rounder);
  const auto r = hn::NegMulAdd(n, hn::Set(d, -0x1.05c610ca86c39p-29), hn::NegMulAdd(n, hn::Set(d, 0x1.62e43p-1), y));
  const auto number = hn::Eq(x, x);
  const auto e = horner(d, C::exp, r);
  const auto high = hn::DemoteTo(narrow, e), low = hn::DemoteTo(narrow, hn::Sub(e, hn::PromoteTo(d, high)));
  return {hn::IfThenElse(number, high, x), low, hn::IfThenElseZero(number, hn::DemoteTo(narrow, n))};
}

/// Loads the first `count` elements; the other lanes are 0.
HWY_INLINE hn::Vec<SplitTag> load_some(const float* x, std::int64_t count) {
  alignas(64) float some[split_lanes] = {};
  std::memcpy(some, x, sizeof(float) * static_cast<std::size_t>(count));
  return hn::Load(SplitTag(), some);
}

/// Where `split` writes the parts of a row, in whole vectors. `low` may be null: it is not written. If `exponent` is
/// null, high and low are multiplied by 2^exponent.
struct SplitParts {
  float *high, *low, *exponent;
};

/// Splits `count` adjacent elements and writes their parts; `high` may be `x` if x has whole vectors. Returns false if
/// some exponent exceeds narrow_exponent, so that H might not fit in f32.
HWY_NOINLINE inline bool split(const float* x, std::int64_t count, const SplitParts& to) {
  const SplitTag d;
  auto largest = hn::Zero(d);
  const auto one = [&](hn::Vec<SplitTag> value, std::int64_t c) HWY_ATTR {
    SplitVector parts = split_exp(value);
    largest = hn::Max(largest, hn::Abs(parts.exponent));
    if (to.exponent != nullptr) {
      hn::StoreU(parts.exponent, d, to.exponent + c);
    } else {
      const auto power = two_to(d, parts.exponent);
      parts.high = hn::Mul(parts.high, power);
      parts.low = hn::Mul(parts.low, power);
    }
    hn::StoreU(parts.high, d, to.high + c);
    if (to.low != nullptr) hn::StoreU(parts.low, d, to.low + c);
  };
  std::int64_t c = 0;
  for (; c + split_lanes <= count; c += split_lanes) one(hn::LoadU(d, x + c), c);
  if (c < count) one(load_some(x + c, count - c), c);
  return hn::AllTrue(d, hn::Le(largest, hn::Set(d, narrow_exponent)));
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
