// src/kernels/rows/slopes-inl.h: computes dy times the slope of an activation, in the order of kernels/ref/slope.cc.
#if defined(ATTN_ROWS_SLOPES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_ROWS_SLOPES_INL_H
#undef ATTN_ROWS_SLOPES_INL_H
#else
#define ATTN_ROWS_SLOPES_INL_H
#endif

#include <hwy/highway.h>

#include "kernels/math/activations-inl.h"
#include "kernels/reference.h"
#include "kernels/rows/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
namespace hn = hwy::HWY_NAMESPACE;

template <typename T, typename F>
HWY_INLINE void each_slope(const T* dy, const T* x, T* y, std::int64_t n, F slope) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t N = HWY_LANES(T);
  for (std::int64_t i = 0; i < n; i += N) {
    const std::int64_t count = n - i < N ? n - i : N;
    fetch_later(dy + i);
    fetch_later(x + i);
    store_some(d, canonical(d, hn::Mul(load_some(d, dy + i, count), slope(load_some(d, x + i, count)))), y + i, count);
  }
}

template <typename T>
HWY_NOINLINE void slope_of(Slope op, const T* dy, const T* x, T* y, std::int64_t n) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  using C = SlopeConstants<T>;
  const V one = hn::Set(d, T(1)), half = hn::Set(d, T(0.5));
  switch (op) {
    case Slope::tanh: return each_slope(dy, x, y, n, [=](V v) HWY_ATTR { return hn::Sub(one, hn::Mul(v, v)); });
    case Slope::sigmoid: return each_slope(dy, x, y, n, [=](V v) HWY_ATTR { return hn::Mul(hn::Sub(one, v), v); });
    case Slope::silu:
      return each_slope(dy, x, y, n, [=](V v) HWY_ATTR {
        const V s = sigmoid(d, v);
        return hn::Add(s, hn::Mul(v, hn::Mul(s, hn::Sub(one, s))));
      });
    case Slope::gelu_none:
      return each_slope(dy, x, y, n, [=](V v) HWY_ATTR {
        const V distribution = hn::Mul(hn::Add(erf(d, hn::Mul(v, hn::Set(d, C::sqrt_half))), one), half);
        const V density = hn::Mul(exp(d, hn::Mul(hn::Mul(v, v), hn::Set(d, T(-0.5)))), hn::Set(d, C::density_at_0));
        return hn::Add(distribution, hn::Mul(v, density));
      });
    case Slope::gelu_tanh:
      return each_slope(dy, x, y, n, [=](V v) HWY_ATTR {
        const V square = hn::Mul(v, v), scale = hn::Set(d, C::gelu_scale);
        const V t = tanh(d, hn::Mul(hn::Add(v, hn::Mul(hn::Mul(square, v), hn::Set(d, C::gelu_cubic))), scale));
        const V inner = hn::Mul(hn::Add(hn::Mul(square, hn::Set(d, C::gelu_cubic_slope)), one), scale);
        return hn::Add(hn::Mul(hn::Add(t, one), half),
                       hn::Mul(hn::Mul(hn::Mul(v, half), hn::Sub(one, hn::Mul(t, t))), inner));
      });
  }
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
