// src/kernels/attention/mask/masked_values-inl.h: the vectors' part of masked_values.h, which states the rule.
#if defined(ATTN_MASKED_VALUES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_MASKED_VALUES_INL_H
#undef ATTN_MASKED_VALUES_INL_H
#else
#define ATTN_MASKED_VALUES_INL_H
#endif

#include "kernels/attention/mask/masked_values.h"
#include "kernels/simd/lanes-inl.h"
#include "kernels/x86/bf16_target.h"

#if HWY_TARGET == HWY_AVX3
#include <immintrin.h>
#endif

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// Returns x with canonical NaNs.
template <typename T>
HWY_INLINE Vector<T> canonical_lanes(Vector<T> x) {
  return hn::IfThenElse(hn::Eq(x, x), x, hn::Set(Tag<T>(), std::numeric_limits<T>::quiet_NaN()));
}

/// Collects whether results are numbers: `add` for each vector of them.
template <typename T>
class AreNumbers {
 public:
  HWY_INLINE AreNumbers() : all_(hn::Eq(hn::Zero(Tag<T>()), hn::Zero(Tag<T>()))) {}
  HWY_INLINE void add(Vector<T> x) { all_ = hn::And(all_, hn::Eq(x, x)); }
  /// Return whether all, or those of the `counted` lanes, are numbers.
  HWY_INLINE bool everywhere() const { return hn::AllTrue(Tag<T>(), all_); }
  HWY_INLINE bool in(hn::Mask<Tag<T>> counted) const { return hn::AllTrue(Tag<T>(), hn::Or(all_, hn::Not(counted))); }

 private:
  hn::Mask<Tag<T>> all_;
};

/// Collects whether results are finite.
template <typename T>
class AreFinite {
 public:
  HWY_INLINE AreFinite() : sum_(hn::Zero(Tag<T>())) {}
  HWY_INLINE void add(Vector<T> x) { sum_ = hn::Add(sum_, hn::Sub(x, x)); }
  HWY_INLINE void add(hn::Mask<Tag<T>> counted, Vector<T> x) {
    sum_ = hn::Add(sum_, hn::IfThenElseZero(counted, hn::Sub(x, x)));
  }
  HWY_INLINE bool everywhere() const { return hn::AllTrue(Tag<T>(), hn::Eq(sum_, sum_)); }
  HWY_INLINE bool in(hn::Mask<Tag<T>> counted) const {
    return hn::AllTrue(Tag<T>(), hn::Or(hn::Eq(sum_, sum_), hn::Not(counted)));
  }

 private:
  Vector<T> sum_;  // 0, or NaN if some number is not finite
};

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_TARGET == HWY_AVX3
ATTN_BEFORE_BF16_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {

/// Returns which numbers of bf16 are not finite, from twice their bits, which drops the signs.
HWY_INLINE __mmask32 bf16_not_finite(__m512i twice) {
  return _mm512_cmpge_epu16_mask(twice, _mm512_set1_epi16(static_cast<short>(0xFF00)));
}
HWY_INLINE __m512i bf16_finite_or_zero(__m512i x) {
  return _mm512_maskz_mov_epi16(~bf16_not_finite(_mm512_add_epi16(x, x)), x);
}

}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
#endif
