// src/kernels/rows/unary-inl.h: applies elementary functions to contiguous memory, in vectors.
#if defined(ATTN_ROWS_UNARY_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_ROWS_UNARY_INL_H
#undef ATTN_ROWS_UNARY_INL_H
#else
#define ATTN_ROWS_UNARY_INL_H
#endif

#include <hwy/highway.h>

#include "kernels/math/activations-inl.h"
#include "kernels/math/logarithms-inl.h"
#include "kernels/reference.h"
#include "kernels/rows/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
namespace hn = hwy::HWY_NAMESPACE;

/// Computes y = f(x); y may be x.
template <typename T, typename F>
HWY_INLINE void each(const T* x, T* y, std::int64_t n, F f) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t N = HWY_LANES(T);
  const std::int64_t whole = n / N * N, left = n - whole;
  alignas(64) T some[N];
  T* const y_end = y + whole;
  // the last, incomplete vector is copied to `some` and takes another round of this loop, so that f is inlined once
  for (std::int64_t count = whole;; count = N) {
    for (std::int64_t i = 0; i < count; i += N) {
      fetch_later(x + i);
      hn::StoreU(f(hn::LoadU(d, x + i)), d, y + i);
    }
    if (y == some) break;
    if (left == 0) return;
    std::memset(some, 0, sizeof some);
    std::memcpy(some, x + whole, static_cast<std::size_t>(left) * sizeof(T));
    x = y = some;
  }
  std::memcpy(y_end, some, static_cast<std::size_t>(left) * sizeof(T));
}

/// Computes sine or cosine. A vector with a number of 2^20 or more in absolute value, an infinity or NaN is left to the
/// reference code.
template <typename T>
HWY_NOINLINE void each_sine(Unary op, const T* x, T* y, std::int64_t n) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t N = HWY_LANES(T);
  const auto element = sizeof(T) == 8 ? Element::f64 : Element::f32;
  const std::int64_t quarter_turns = op == Unary::cos;
  for (std::int64_t i = 0; i < n; i += N) {
    const std::int64_t count = n - i < N ? n - i : N;
    const auto v = load_some(d, x + i, count);
    if (!hn::AllTrue(d, hn::Lt(hn::Abs(v), hn::Set(d, T(0x1p20))))) {
      reference().unary(op, element, x + i, y + i, count);
      continue;
    }
    store_some(
        d, by_f64(d, v, [quarter_turns](auto wide, auto w) HWY_ATTR { return sine_of_turn(wide, w, quarter_turns); }),
        y + i, count);
  }
}

template <typename T>
void unary_of(Unary op, const T* x, T* y, std::int64_t n) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  switch (op) {
    case Unary::exp: return each(x, y, n, [d](V v) HWY_ATTR { return canonical(d, exp(d, v)); });
    case Unary::exp2: return each(x, y, n, [d](V v) HWY_ATTR { return canonical(d, exp2(d, v)); });
    case Unary::log:
      return each(x, y, n, [d](V v) HWY_ATTR {
        return canonical(d, by_f64(d, v, [](auto w, auto u) HWY_ATTR { return log_f64(w, u); }));
      });
    case Unary::log2: {
      const auto wide = [](auto w, auto u) HWY_ATTR { return undefined_below_zero(w, u, log2_f64(w, u)); };
      return each(x, y, n, [d, wide](V v) HWY_ATTR { return canonical(d, by_f64(d, v, wide)); });
    }
    case Unary::tanh: return each(x, y, n, [d](V v) HWY_ATTR { return canonical(d, tanh(d, v)); });
    case Unary::erf: return each(x, y, n, [d](V v) HWY_ATTR { return erf(d, v); });
    case Unary::sin:
    case Unary::cos: return each_sine(op, x, y, n);
    case Unary::sigmoid: return each(x, y, n, [d](V v) HWY_ATTR { return sigmoid(d, v); });
    case Unary::silu: return each(x, y, n, [d](V v) HWY_ATTR { return silu(d, v); });
    case Unary::gelu_none: return each(x, y, n, [d](V v) HWY_ATTR { return gelu_none(d, v); });
    case Unary::gelu_tanh: return each(x, y, n, [d](V v) HWY_ATTR { return gelu_tanh(d, v); });
  }
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
