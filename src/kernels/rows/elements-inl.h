// src/kernels/rows/elements-inl.h: computes sums, differences, products and quotients element by element.
#if defined(ATTN_ROWS_ELEMENTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_ROWS_ELEMENTS_INL_H
#undef ATTN_ROWS_ELEMENTS_INL_H
#else
#define ATTN_ROWS_ELEMENTS_INL_H
#endif

#include <hwy/highway.h>

#include "kernels/rows/halves-inl.h"
#include "kernels/rows/lanes-inl.h"
#include "kernels/rows/target.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
namespace hn = hwy::HWY_NAMESPACE;

/// Reads vectors of f32 or f64 from memory and writes them.
template <typename T>
struct Wide {
  using Item = T;
  using D = hn::ScalableTag<T>;
  static HWY_INLINE hn::Vec<D> load(const T* x, std::int64_t count) { return load_some(D(), x, count); }
  static HWY_INLINE void store(hn::Vec<D> v, T* y, std::int64_t count) { store_some(D(), v, y, count); }
};
using Singles = Wide<float>;

/// Reads bf16 as f32 and writes f32 as bf16 by the conversions of halves-inl.h (to nearest even); not for f16.
struct Halves {
  using Item = std::uint16_t;
  using D = hn::ScalableTag<float>;
  static HWY_INLINE hn::Vec<D> load(const std::uint16_t* x, std::int64_t count) {
    constexpr std::int64_t N = HWY_LANES(float);
    alignas(64) std::uint16_t edge[N] = {};
    if (count < N) std::memcpy(edge, x, sizeof *x * static_cast<std::size_t>(count));
    return hn::BitCast(D(), WidenBf16()(Words(), hn::PromoteTo(Words(), hn::LoadU(HalfWords(), count < N ? edge : x))));
  }
  static HWY_INLINE void store(hn::Vec<D> v, std::uint16_t* y, std::int64_t count) {
    constexpr std::int64_t N = HWY_LANES(float);
    const auto half = hn::TruncateTo(HalfWords(), NarrowBf16()(Words(), hn::BitCast(Words(), v)));
    if (count >= N) return hn::StoreU(half, HalfWords(), y);
    alignas(64) std::uint16_t edge[N];
    hn::Store(half, HalfWords(), edge);
    std::memcpy(y, edge, sizeof *y * static_cast<std::size_t>(count));
  }
};

/// Computes y[i] = f(i, count) for vectors of `count` elements from i on.
template <class To, typename F>
HWY_INLINE void each_of(typename To::Item* y, std::int64_t n, F f) {
  constexpr std::int64_t N = HWY_LANES(hn::TFromD<typename To::D>);
  std::int64_t i = 0;
  for (; i + N <= n; i += N) To::store(f(i, N), y + i, N);
  if (i < n) To::store(f(i, n - i), y + i, n - i);
}

template <class Kind, typename F>
HWY_INLINE void each_pair(const typename Kind::Item* a, const typename Kind::Item* b, hn::TFromD<typename Kind::D> one,
                          typename Kind::Item* y, std::int64_t n, F f) {
  if (b != nullptr)
    return each_of<Kind>(y, n, [&](std::int64_t i, std::int64_t count) HWY_ATTR {
      fetch_later(a + i);
      fetch_later(b + i);
      return f(Kind::load(a + i, count), Kind::load(b + i, count));
    });
  const auto second = hn::Set(typename Kind::D(), one);
  each_of<Kind>(y, n, [&](std::int64_t i, std::int64_t count) HWY_ATTR {
    fetch_later(a + i);
    return f(Kind::load(a + i, count), second);
  });
}

template <class Kind>
HWY_NOINLINE void binary_of(Binary op, const void* first, const void* second, hn::TFromD<typename Kind::D> one,
                            void* result, std::int64_t n) {
  using V = hn::Vec<typename Kind::D>;
  const auto *a = static_cast<const typename Kind::Item*>(first), *b = static_cast<const typename Kind::Item*>(second);
  auto* y = static_cast<typename Kind::Item*>(result);
  switch (op) {
    case Binary::add: return each_pair<Kind>(a, b, one, y, n, [](V u, V v) HWY_ATTR { return hn::Add(u, v); });
    case Binary::sub: return each_pair<Kind>(a, b, one, y, n, [](V u, V v) HWY_ATTR { return hn::Sub(u, v); });
    case Binary::mul: return each_pair<Kind>(a, b, one, y, n, [](V u, V v) HWY_ATTR { return hn::Mul(u, v); });
    case Binary::div: return each_pair<Kind>(a, b, one, y, n, [](V u, V v) HWY_ATTR { return hn::Div(u, v); });
  }
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
