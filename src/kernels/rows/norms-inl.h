// src/kernels/rows/norms-inl.h: computes mean and deviations of a row, layer norm and RMS norm.
#if defined(ATTN_ROWS_NORMS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_ROWS_NORMS_INL_H
#undef ATTN_ROWS_NORMS_INL_H
#else
#define ATTN_ROWS_NORMS_INL_H
#endif

#include <hwy/highway.h>

#include <cmath>

#include "kernels/math/activations-inl.h"
#include "kernels/rows/write-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// Computes the sum of squared differences from `middle`.
template <typename T>
HWY_NOINLINE T deviations_from(const T* x, std::int64_t n, T middle, bool fetch_next) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr std::int64_t N = HWY_LANES(T);
  const V center = hn::Set(d, middle);
  return canonical_scalar(tree_sum<T>(n, [&](V partial, std::int64_t i, std::int64_t count) HWY_ATTR {
    if (fetch_next) hwy::Prefetch(x + i + n);
    V difference = hn::Sub(load_some(d, x + i, count), center);
    if (count < N) difference = hn::IfThenElseZero(hn::FirstN(d, static_cast<std::size_t>(count)), difference);
    return hn::MulAdd(difference, difference, partial);
  }));
}

template <typename T>
HWY_NOINLINE void moments(const T* x, std::int64_t n, T* mean, T* deviations, bool fetch_next = false) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const T middle = tree_sum<T>(n,
                               [&](V partial, std::int64_t i, std::int64_t count) HWY_ATTR {
                                 fetch_later(x + i);
                                 return hn::Add(partial, load_some(d, x + i, count));
                               }) /
                   static_cast<T>(n);
  *mean = canonical_scalar(middle);
  *deviations = deviations_from(x, n, middle, fetch_next);
}

template <typename T, To TO>
HWY_NOINLINE void layer_norm(const T* x, const T* weight, const T* bias, T eps, T* y, std::int64_t n) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  T mean, deviations;
  moments(x, n, &mean, &deviations, TO == To::memory);
  const V scale = hn::Set(d, T(1) / std::sqrt(deviations / static_cast<T>(n) + eps)), center = hn::Set(d, mean),
          one = hn::Set(d, T(1));
  write_row<TO>(y, n, [&](std::int64_t i, std::int64_t count) HWY_ATTR {
    const V normal = hn::Mul(hn::Sub(load_some(d, x + i, count), center), scale);
    const V w = weight ? load_some(d, weight + i, count) : one, b = bias ? load_some(d, bias + i, count) : hn::Zero(d);
    return canonical(d, hn::MulAdd(normal, w, b));
  });
}

/// Computes the gradient of a norm. RMS norm is layer norm with a mean of 0: subtracting +0 changes no number.
template <typename T>
HWY_NOINLINE void norm_gradient(const NormGradientRow& row) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr std::int64_t N = HWY_LANES(T);
  const T *x = static_cast<const T*>(row.x), *dy = static_cast<const T*>(row.dy),
          *weight = static_cast<const T*>(row.weight);
  T *dx = static_cast<T*>(row.dx), *weight_sums = static_cast<T*>(row.weight_sums),
    *bias_sums = static_cast<T*>(row.bias_sums);
  const T n = static_cast<T>(row.n);
  const auto u = [&](std::int64_t i, std::int64_t count) HWY_ATTR {
    const V v = load_some(d, dy + i, count);
    return weight ? hn::Mul(v, load_some(d, weight + i, count)) : v;
  };
  T sums[2];  // the sums of x (RMS norm: of its squares) and of u
  tree_sums<T, 2>(row.n, sums, [&](V(&partial)[2], std::int64_t i, std::int64_t count) HWY_ATTR {
    const V v = load_some(d, x + i, count);
    partial[0] = hn::Add(partial[0], row.rms ? hn::Mul(v, v) : v);
    partial[1] = hn::Add(partial[1], u(i, count));
  });
  const T mean = row.rms ? T(0) : sums[0] / n,
          squares = row.rms ? canonical_scalar(sums[0]) : deviations_from(x, row.n, mean, false);
  const V inverse = hn::Set(d, T(1) / std::sqrt(squares / n + static_cast<T>(row.eps))), center = hn::Set(d, mean);
  const V mean_u = hn::Set(d, row.rms ? T(0) : canonical_scalar(sums[1]) / n);
  const auto z = [&](std::int64_t i, std::int64_t count)
                     HWY_ATTR { return hn::Mul(hn::Sub(load_some(d, x + i, count), center), inverse); };
  const V mean_uz =
      hn::Set(d, canonical_scalar(tree_sum<T>(row.n,
                                              [&](V partial, std::int64_t i, std::int64_t count) HWY_ATTR {
                                                V product = hn::Mul(u(i, count), z(i, count));
                                                if (count < N)
                                                  product = hn::IfThenElseZero(
                                                      hn::FirstN(d, static_cast<std::size_t>(count)), product);
                                                return hn::Add(partial, product);
                                              })) /
                     n);
  for (std::int64_t i = 0; i < row.n; i += N) {
    const std::int64_t count = std::min(N, row.n - i);
    const V normal = z(i, count), g = u(i, count), up = load_some(d, dy + i, count);
    if (weight_sums)
      store_some(d, hn::Add(load_some(d, weight_sums + i, count), hn::Mul(up, normal)), weight_sums + i, count);
    if (bias_sums) store_some(d, hn::Add(load_some(d, bias_sums + i, count), up), bias_sums + i, count);
    store_some(d, canonical(d, hn::Mul(hn::Sub(hn::Sub(g, mean_u), hn::Mul(normal, mean_uz)), inverse)), dx + i, count);
  }
}

template <typename T>
T sum_of_squares(const T* x, std::int64_t n) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  return tree_sum<T>(n, [&](V partial, std::int64_t i, std::int64_t count) HWY_ATTR {
    const V v = load_some(d, x + i, count);
    return hn::MulAdd(v, v, partial);
  });
}

template <typename T, To TO>
HWY_NOINLINE void rms_norm(const T* x, const T* weight, T eps, T* y, std::int64_t n) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const V scale = hn::Set(d, T(1) / std::sqrt(sum_of_squares(x, n) / static_cast<T>(n) + eps));
  write_row<TO>(y, n, [&](std::int64_t i, std::int64_t count) HWY_ATTR {
    fetch_ahead<TO>(x + i, n);
    const V normal = hn::Mul(load_some(d, x + i, count), scale);
    return canonical(d, weight ? hn::Mul(normal, load_some(d, weight + i, count)) : normal);
  });
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
