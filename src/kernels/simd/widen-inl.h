// src/kernels/simd/widen-inl.h: converts stored elements of a narrower type to f32 or f64, exactly: a vector or a row.
#if defined(ATTN_WIDEN_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_WIDEN_INL_H
#undef ATTN_WIDEN_INL_H
#else
#define ATTN_WIDEN_INL_H
#endif

#include "kernels/simd/lanes-inl.h"

#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// BytesOfVector has as many int8 as a vector has f32. The functions `widen` convert stored elements exactly.
using BytesOfVector = hn::Rebind<std::int8_t, Tag<float>>;
HWY_INLINE Vector<float> widen(Tag<float> d, hn::Vec<BytesOfVector> bytes) {
  return hn::ConvertTo(d, hn::PromoteTo(hn::Rebind<std::int32_t, Tag<float>>(), bytes));
}
HWY_INLINE Vector<float> widen(Tag<float> d, const std::int8_t* from) {
  return widen(d, hn::LoadU(BytesOfVector(), from));
}
HWY_INLINE Vector<double> widen(Tag<double> d, const std::int8_t* from) {
  const hn::Rebind<std::int32_t, Tag<double>> whole;
  return hn::PromoteTo(d, hn::PromoteTo(whole, hn::LoadU(hn::Rebind<std::int8_t, Tag<double>>(), from)));
}
HWY_INLINE Vector<float> widen(Tag<float> d, const hwy::float16_t* from) {
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<hwy::float16_t, Tag<float>>(), from));
}
HWY_INLINE Vector<float> widen(Tag<float> d, const hwy::bfloat16_t* from) {
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<hwy::bfloat16_t, Tag<float>>(), from));
}

/// Converts `count` adjacent elements and multiplies each by `scale` (null: by nothing).
template <typename T, typename From>
HWY_INLINE void widen_row(const From* HWY_RESTRICT from, std::int64_t count, const T* scale, T* HWY_RESTRICT to) {
  const Tag<T> d;
  constexpr std::int64_t N = lanes<T>;
  const auto factor = hn::Set(d, scale ? *scale : T(1));
  const auto widened = [&](const From* place)
                           HWY_ATTR { return scale ? hn::Mul(widen(d, place), factor) : widen(d, place); };
  std::int64_t c = 0;
  for (; c + N <= count; c += N) hn::StoreU(widened(from + c), d, to + c);
  if (c == count) return;
  From last[N] = {};
  std::memcpy(last, from + c, static_cast<std::size_t>(count - c) * sizeof(From));
  T values[N];
  hn::StoreU(widened(last), d, values);
  std::memcpy(to + c, values, static_cast<std::size_t>(count - c) * sizeof(T));
}

/// Converts `count` adjacent elements of bf16 or f16.
HWY_INLINE void widen_half_row(Element element, const void* from, std::int64_t count, float* to) {
  if (element == Element::f16) widen_row<float>(static_cast<const hwy::float16_t*>(from), count, nullptr, to);
  else widen_row<float>(static_cast<const hwy::bfloat16_t*>(from), count, nullptr, to);
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
