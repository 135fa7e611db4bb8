// src/kernels/attention/weights-inl.h: scores to weights: the new maximum, the factor of what came before, exp2, the sum.
#if defined(ATTN_WEIGHTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_WEIGHTS_INL_H
#undef ATTN_WEIGHTS_INL_H
#else
#define ATTN_WEIGHTS_INL_H
#endif

#include "kernels/attention/groups.h"
#include "kernels/attention/tile-inl.h"
#include "kernels/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

template <typename T>
HWY_INLINE Vector<T> minus_infinity() {
  return hn::Set(Tag<T>(), -std::numeric_limits<T>::infinity());
}

/// exp2((x - reference) * log2 e), where a reference of -inf (nothing seen yet) counts as 0, so that -inf gives weight 0.
template <typename T>
HWY_INLINE Vector<T> weight_of(Vector<T> x, Vector<T> reference) {
  return exp2_of_negative(Tag<T>(), hn::Mul(hn::Sub(x, reference), hn::Set(Tag<T>(), static_cast<T>(1.4426950408889634074))));
}
template <typename T>
HWY_INLINE Vector<T> safe_reference(Vector<T> m) {
  return hn::IfThenZeroElse(hn::Eq(m, minus_infinity<T>()), m);
}

/// One vector of rows, all keys of the block: `alpha` holds the new maximum and receives the factor, `s` the weights.
template <typename T>
HWY_INLINE void weigh_vector(const Strip<T>& strip, const Groups& groups, int v) {
  const Tag<T> d;
  constexpr int R = strip_rows<T>, N = lanes<T>;
  const auto before = hn::Load(d, strip.m + v * N);
  const auto maximum = hn::Load(d, strip.alpha + v * N);
  const auto reference = safe_reference<T>(maximum);
  const auto alpha = hn::IfThenZeroElse(hn::Eq(before, minus_infinity<T>()), weight_of<T>(before, reference));
  auto sum = hn::Zero(d);
  for (int g = 0; g < groups.count; ++g) {
    if (v < groups.first[g] || v >= groups.last[g]) continue;
    T* s = strip.s + groups.key[g] * R + v * N;
    _Pragma("GCC unroll 4") for (int r = groups.key[g]; r < groups.key[g + 1]; ++r, s += R) {
      const auto p = weight_of<T>(hn::Load(d, s), reference);
      sum = hn::Add(sum, p);
      hn::Store(p, d, s);
    }
  }
  hn::Store(maximum, d, strip.m + v * N);
  hn::Store(alpha, d, strip.alpha + v * N);
  hn::Store(hn::MulAdd(hn::Load(d, strip.l + v * N), alpha, sum), d, strip.l + v * N);
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
