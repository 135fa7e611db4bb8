// src/kernels/rows/rows.cc: sums, softmax, moments and layer norm along rows, compiled once for every instruction set.
#include "kernels/rows/target.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rows/rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/rows/lanes-inl.h"
#include "kernels/rows/unary-inl.h"
#include "runtime/cpu.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

template <typename T>
constexpr T quiet_nan = std::numeric_limits<T>::quiet_NaN();
template <typename T>
T canonical_scalar(T x) {
  return x != x ? quiet_nan<T> : x;
}

/// The largest element, NaN where there is one, -inf of none; never -0.
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

/// exp2((x - m) log2e) of a row with a finite maximum m.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> weight(D d, hn::Vec<D> x, hn::Vec<D> m) {
  return exp2_of_negative(d, hn::Mul(hn::Sub(x, m), hn::Set(d, Constants<T>::log2e)));
}

template <typename T>
HWY_NOINLINE void softmax(const T* x, T* y, std::int64_t n) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr std::int64_t N = HWY_LANES(T);
  const T most = largest(x, n);
  if (!std::isfinite(most)) return std::fill(y, y + n, quiet_nan<T>);  // NaN, inf - inf, or no key at all
  const V m = hn::Set(d, most);
  const T sum = tree_sum<T>(n, [&](V partial, std::int64_t i, std::int64_t count) HWY_ATTR {
    V p = weight(d, load_some(d, x + i, count), m);
    if (count < N) p = hn::IfThenElseZero(hn::FirstN(d, static_cast<std::size_t>(count)), p);
    store_some(d, p, y + i, count);
    return hn::Add(partial, p);
  });
  const V inverse = hn::Set(d, T(1) / sum);
  for (std::int64_t i = 0; i < n; i += N) {
    const std::int64_t count = std::min(N, n - i);
    store_some(d, canonical(d, hn::MulAdd(load_some(d, y + i, count), inverse, hn::Zero(d))), y + i, count);
  }
}

template <typename T>
HWY_NOINLINE void log_softmax(const T* x, T* y, std::int64_t n) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr std::int64_t N = HWY_LANES(T);
  const T most = largest(x, n);
  if (!std::isfinite(most)) return std::fill(y, y + n, quiet_nan<T>);
  const V m = hn::Set(d, most);
  const T sum = tree_sum<T>(n, [&](V partial, std::int64_t i, std::int64_t count) HWY_ATTR {
    V p = weight(d, load_some(d, x + i, count), m);
    if (count < N) p = hn::IfThenElseZero(hn::FirstN(d, static_cast<std::size_t>(count)), p);
    return hn::Add(partial, p);
  });
  T log_sum;
  reference().unary(Unary::log, sizeof(T) == 8 ? Element::f64 : Element::f32, &sum, &log_sum, 1);
  const V log = hn::Set(d, log_sum);
  for (std::int64_t i = 0; i < n; i += N) {
    const std::int64_t count = std::min(N, n - i);
    const V value = hn::Add(hn::Sub(hn::Sub(load_some(d, x + i, count), m), log), hn::Zero(d));
    store_some(d, canonical(d, value), y + i, count);
  }
}

template <typename T>
HWY_NOINLINE void moments(const T* x, std::int64_t n, T* mean, T* deviations) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr std::int64_t N = HWY_LANES(T);
  const T middle = tree_sum<T>(n, [&](V partial, std::int64_t i, std::int64_t count) HWY_ATTR { return hn::Add(partial, load_some(d, x + i, count)); }) /
                   static_cast<T>(n);
  const V center = hn::Set(d, middle);
  *mean = canonical_scalar(middle);
  *deviations = canonical_scalar(tree_sum<T>(n, [&](V partial, std::int64_t i, std::int64_t count) HWY_ATTR {
    V difference = hn::Sub(load_some(d, x + i, count), center);
    if (count < N) difference = hn::IfThenElseZero(hn::FirstN(d, static_cast<std::size_t>(count)), difference);
    return hn::MulAdd(difference, difference, partial);
  }));
}

template <typename T>
HWY_NOINLINE void layer_norm(const T* x, const T* weight, const T* bias, T eps, T* y, std::int64_t n) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr std::int64_t N = HWY_LANES(T);
  T mean, deviations;
  moments(x, n, &mean, &deviations);
  const V scale = hn::Set(d, T(1) / std::sqrt(deviations / static_cast<T>(n) + eps)), center = hn::Set(d, mean), one = hn::Set(d, T(1));
  for (std::int64_t i = 0; i < n; i += N) {
    const std::int64_t count = std::min(N, n - i);
    const V normal = hn::Mul(hn::Sub(load_some(d, x + i, count), center), scale);
    const V w = weight ? load_some(d, weight + i, count) : one, b = bias ? load_some(d, bias + i, count) : hn::Zero(d);
    store_some(d, canonical(d, hn::MulAdd(normal, w, b)), y + i, count);
  }
}

template <typename T>
void row_of(RowOp op, const T* x, T* y, std::int64_t n) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  switch (op) {
    case RowOp::sum:
      *y = canonical_scalar(tree_sum<T>(n, [&](V s, std::int64_t i, std::int64_t count) HWY_ATTR { return hn::Add(s, load_some(d, x + i, count)); }));
      return;
    case RowOp::sum_of_squares:
      *y = canonical_scalar(tree_sum<T>(n, [&](V s, std::int64_t i, std::int64_t count) HWY_ATTR {
        const V v = load_some(d, x + i, count);
        return hn::MulAdd(v, v, s);
      }));
      return;
    case RowOp::sum_of_absolutes:
      *y = canonical_scalar(tree_sum<T>(n, [&](V s, std::int64_t i, std::int64_t count) HWY_ATTR { return hn::Add(s, hn::Abs(load_some(d, x + i, count))); }));
      return;
    case RowOp::max: *y = largest(x, n); return;
    case RowOp::softmax: return softmax(x, y, n);
    case RowOp::log_softmax: return log_softmax(x, y, n);
  }
}

template <typename T>
void sum_columns_of(const T* x, std::int64_t stride, std::int64_t n, T* y, std::int64_t columns) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t N = HWY_LANES(T), rows_ahead = 16;
  for (std::int64_t c = 0; c < columns; c += N) {
    const std::int64_t count = std::min(N, columns - c);
    const auto sum = count == N ? tree_sum_of_columns(d, n, [&](std::int64_t i) HWY_ATTR {
      hwy::Prefetch(x + (i + rows_ahead) * stride + c);
      return hn::LoadU(d, x + i * stride + c);
    }) : tree_sum_of_columns(d, n, [&](std::int64_t i) HWY_ATTR { return load_some(d, x + i * stride + c, count); });
    store_some(d, canonical(d, sum), y + c, count);
  }
}

/// Calls run(T{}) with float or double.
template <typename Run>
void with_element(Element element, Run run) {
  element == Element::f64 ? run(double{}) : run(float{});
}

void unary(Unary op, Element element, const void* x, void* y, std::int64_t n) noexcept {
  with_element(element, [&]<typename T>(T) { unary_of(op, static_cast<const T*>(x), static_cast<T*>(y), n); });
}
void row(RowOp op, Element element, const void* x, std::int64_t x_stride, void* y, std::int64_t y_stride, std::int64_t n) noexcept {
  const bool one_value = op != RowOp::softmax && op != RowOp::log_softmax;
  if (x_stride != 1 || (y_stride != 1 && !one_value)) return reference().row(op, element, x, x_stride, y, y_stride, n);
  with_element(element, [&]<typename T>(T) { row_of(op, static_cast<const T*>(x), static_cast<T*>(y), n); });
}
void layer_norm_row(Element element, const void* x, const void* weight, const void* bias, double eps, void* y, std::int64_t n) noexcept {
  with_element(element, [&]<typename T>(T) {
    layer_norm(static_cast<const T*>(x), static_cast<const T*>(weight), static_cast<const T*>(bias), static_cast<T>(eps), static_cast<T*>(y), n);
  });
}
void moments_row(Element element, const void* x, std::int64_t x_stride, std::int64_t n, void* mean, void* deviations) noexcept {
  if (x_stride != 1) return reference().moments_row(element, x, x_stride, n, mean, deviations);
  with_element(element, [&]<typename T>(T) { moments(static_cast<const T*>(x), n, static_cast<T*>(mean), static_cast<T*>(deviations)); });
}

void sum_columns(Element element, const void* x, std::int64_t x_stride, std::int64_t n, void* y, std::int64_t columns) noexcept {
  with_element(element, [&]<typename T>(T) { sum_columns_of(static_cast<const T*>(x), x_stride, n, static_cast<T*>(y), columns); });
}

extern const RowTarget row_table;
const RowTarget row_table = {
    .name = HWY_TARGET == HWY_AVX2 ? "avx2" : HWY_TARGET == HWY_AVX3 ? "avx512" : "neon",
    .unary = unary,
    .row = row,
    .layer_norm_row = layer_norm_row,
    .moments_row = moments_row,
    .sum_columns = sum_columns,
};

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attn::kernels {

const RowTarget* row_target(const char* name) noexcept {
  const RowTarget* const built[] = {
#if HWY_TARGETS & HWY_AVX3
      &N_AVX3::row_table,
#endif
#if HWY_TARGETS & HWY_AVX2
      &N_AVX2::row_table,
#endif
#if HWY_TARGETS & HWY_NEON
      &N_NEON::row_table,
#endif
      nullptr};
  for (const RowTarget* target : built)
    if (target != nullptr && std::strcmp(target->name, name) == 0) return target;
  return nullptr;
}

namespace {
void sum_columns_by_specification(Element element, const void* x, std::int64_t x_stride, std::int64_t n, void* y, std::int64_t columns) noexcept {
  const std::int64_t size = element == Element::f64 ? 8 : 4;
  for (std::int64_t c = 0; c < columns; ++c)
    reference().row(RowOp::sum, element, static_cast<const char*>(x) + c * size, x_stride, static_cast<char*>(y) + c * size, 1, n);
}
}  // namespace

const RowTarget& row_kernels() {
  static const RowTarget specification = {"scalar", reference().unary, reference().row, reference().layer_norm_row, reference().moments_row,
                                          sum_columns_by_specification};
  static const RowTarget* const chosen = row_target(runtime::target().c_str());
  return chosen ? *chosen : specification;
}

}  // namespace attn::kernels
#endif
