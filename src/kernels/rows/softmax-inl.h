// src/kernels/rows/softmax-inl.h: computes the maximum of a row, softmax and log_softmax.
#if defined(ATTN_ROWS_SOFTMAX_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_ROWS_SOFTMAX_INL_H
#undef ATTN_ROWS_SOFTMAX_INL_H
#else
#define ATTN_ROWS_SOFTMAX_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/math/activations-inl.h"
#include "kernels/reference.h"
#include "kernels/rows/write-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// Returns the largest element; NaN if there is one; -inf for an empty row; never -0.
template <typename T>
HWY_NOINLINE T largest(const T* x, std::int64_t n) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t N = HWY_LANES(T);
  constexpr int ways = 4;
  const auto lowest = hn::Set(d, -std::numeric_limits<T>::infinity());
  hn::Vec<decltype(d)> most[ways] = {lowest, lowest, lowest, lowest}, bad = hn::Zero(d);
  const auto take = [&](hn::Vec<decltype(d)>& into, hn::Vec<decltype(d)> v) HWY_ATTR {
    into = hn::Max(into, v);
    bad = hn::IfThenElse(hn::Eq(v, v), bad, v);
  };
  std::int64_t i = 0;
  for (; i + ways * N <= n; i += ways * N) {
    _Pragma("GCC unroll 4") for (int w = 0; w < ways; ++w) take(most[w], hn::LoadU(d, x + i + w * N));
  }
  for (; i + N <= n; i += N) take(most[0], hn::LoadU(d, x + i));
  alignas(64) T lanes[N];
  hn::Store(hn::Max(hn::Max(most[0], most[1]), hn::Max(most[2], most[3])), d, lanes);
  T result = -std::numeric_limits<T>::infinity();
  for (const T lane : lanes) result = lane > result ? lane : result;
  bool nan = !hn::AllTrue(d, hn::Eq(bad, bad));
  for (; i < n; ++i) {
    nan |= x[i] != x[i];
    result = x[i] > result ? x[i] : result;
  }
  return nan ? quiet_nan<T> : result + T(0);
}

/// Computes exp2((x - m) log2e) for a row with a finite maximum m.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> weight(D d, hn::Vec<D> x, hn::Vec<D> m) {
  return exp2_of_negative(d, hn::Mul(hn::Sub(x, m), hn::Set(d, Constants<T>::log2e)));
}

/// Computes the weights of `count` elements from x on, for a row with the finite maximum m; the other lanes are 0.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> some_weights(D d, const T* x, std::int64_t count, hn::Vec<D> m) {
  constexpr std::int64_t N = HWY_LANES(T);
  const auto p = weight(d, load_some(d, x, count), m);
  return count < N ? hn::IfThenElseZero(hn::FirstN(d, static_cast<std::size_t>(count)), p) : p;
}

template <typename T, To TO>
HWY_NOINLINE void softmax(const T* x, T* y, std::int64_t n) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const T most = largest(x, n);
  if (!std::isfinite(most)) return std::fill(y, y + n, quiet_nan<T>);  // NaN, inf - inf, or an empty row
  const V m = hn::Set(d, most);
  const T sum = tree_sum<T>(n, [&](V partial, std::int64_t i, std::int64_t count) HWY_ATTR {
    const V p = some_weights(d, x + i, count, m);
    if constexpr (TO == To::caches) store_some(d, p, y + i, count);
    fetch_ahead<TO>(x + i, n);
    return hn::Add(partial, p);
  });
  const V inverse = hn::Set(d, T(1) / sum);
  // if y is written past the caches, the weights are computed again, which is faster than storing and reading them
  write_row<TO>(y, n, [&](std::int64_t i, std::int64_t count) HWY_ATTR {
    const V p = TO == To::caches ? load_some(d, y + i, count) : some_weights(d, x + i, count, m);
    return canonical(d, hn::MulAdd(p, inverse, hn::Zero(d)));
  });
}

template <typename T, To TO>
HWY_NOINLINE void log_softmax(const T* x, T* y, std::int64_t n) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const T most = largest(x, n);
  if (!std::isfinite(most)) return std::fill(y, y + n, quiet_nan<T>);
  const V m = hn::Set(d, most);
  const T sum = tree_sum<T>(n, [&](V partial, std::int64_t i, std::int64_t count) HWY_ATTR {
    fetch_ahead<TO>(x + i, n);
    return hn::Add(partial, some_weights(d, x + i, count, m));
  });
  T log_sum;
  reference().unary(Unary::log, sizeof(T) == 8 ? Element::f64 : Element::f32, &sum, &log_sum, 1);
  const V log = hn::Set(d, log_sum);
  write_row<TO>(y, n, [&](std::int64_t i, std::int64_t count) HWY_ATTR {
    return canonical(d, hn::Add(hn::Sub(hn::Sub(load_some(d, x + i, count), m), log), hn::Zero(d)));
  });
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
