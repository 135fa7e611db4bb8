// src/kernels/rows/write-inl.h: writes the results of a row, to the caches or past them, and handles its ends.
#if defined(ATTN_ROWS_WRITE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_ROWS_WRITE_INL_H
#undef ATTN_ROWS_WRITE_INL_H
#else
#define ATTN_ROWS_WRITE_INL_H
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <limits>

#include "kernels/rows/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

template <typename T>
constexpr T quiet_nan = std::numeric_limits<T>::quiet_NaN();
template <typename T>
T canonical_scalar(T x) {
  return x != x ? quiet_nan<T> : x;
}

/// Whether a row's results are written to the caches or past them.
enum class To { caches, memory };

/// Writes y = value(i, count) for `count` elements from i on, up to n. To::memory writes whole vectors past the caches:
/// their cache lines are not read first.
template <To TO, typename T, typename Value>
HWY_INLINE void write_row(T* y, std::int64_t n, Value value) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t N = HWY_LANES(T), line = N * sizeof(T);
  std::int64_t i = 0;
  if constexpr (TO == To::memory) {
    const auto beyond = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(y) % line / sizeof(T));
    if (beyond != 0) {
      i = std::min(n, N - beyond);
      store_some(d, value(0, i), y, i);
    }
    for (; i + N <= n; i += N) hn::Stream(value(i, N), d, y + i);
  }
  for (; i < n; i += N) {
    const std::int64_t count = std::min(N, n - i);
    store_some(d, value(i, count), y + i, count);
  }
  if constexpr (TO == To::memory) hwy::FlushStream();
}

/// Prefetches the next row while the current one is computed, if results are written past the caches (To::memory).
template <To TO, typename T>
HWY_INLINE void fetch_ahead(const T* x, std::int64_t ahead) {
  if constexpr (TO == To::memory) hwy::Prefetch(x + ahead);
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
