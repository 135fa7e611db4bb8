// src/kernels/math/math-inl.h: the functions of kernels/ref/math.h in vectors: the same steps, so the same bits.
#if defined(ATTN_MATH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_MATH_INL_H
#undef ATTN_MATH_INL_H
#else
#define ATTN_MATH_INL_H
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
namespace hn = hwy::HWY_NAMESPACE;

template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp2(D d, V x) {
  using T = hn::TFromD<D>;
  const hn::RebindToSigned<D> di;
  const auto n = hn::Round(x);
  const auto f = hn::Sub(x, n);
  auto p = hn::Set(d, T(1.3276472e-3f));
  for (const double c : {9.6755000e-3, 5.5507111e-2, 2.4022107e-1, 6.9314698e-1, 1.0}) p = hn::MulAdd(p, f, hn::Set(d, T(c)));
  constexpr int mantissa = sizeof(T) == 4 ? 23 : 52;
  const auto scaled = hn::BitCast(d, hn::Add(hn::BitCast(di, p), hn::ShiftLeft<mantissa>(hn::ConvertTo(di, n))));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, T(-126))), scaled);
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE V log2(D, V x) { return x; }
template <class D, class V = hn::Vec<D>>
HWY_INLINE V tanh(D, V x) { return x; }

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
