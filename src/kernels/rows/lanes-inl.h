// src/kernels/rows/lanes-inl.h: loads and stores vectors at the ends of arrays, and sums along a row in the fixed
// order.
#if defined(ATTN_ROWS_LANES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_ROWS_LANES_INL_H
#undef ATTN_ROWS_LANES_INL_H
#else
#define ATTN_ROWS_LANES_INL_H
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
namespace hn = hwy::HWY_NAMESPACE;

/// Prefetches data that a long loop will read 8 KB later. If each element takes many steps, the processor's prefetcher
/// does not look that far ahead, and loads wait for memory (gelu of 512 rows of 50,257: 18 ms without, 9 with).
template <typename T>
HWY_INLINE void fetch_later(const T* x) {
  hwy::Prefetch(reinterpret_cast<const T*>(reinterpret_cast<std::uintptr_t>(x) + 8192));
}

/// Loads the first `count` lanes (0 to all); the other lanes are 0. Memory beyond the first `count` elements is not
/// read.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load_some(D d, const T* x, std::int64_t count) {
  constexpr std::int64_t N = HWY_LANES(T);
  if (count >= N) return hn::LoadU(d, x);
#if HWY_ARCH_X86
  return hn::MaskedLoad(hn::FirstN(d, static_cast<std::size_t>(count)), d, x);
#else
  alignas(64) T edge[N] = {};
  // the pointer of an empty row may be null
  if (count > 0) std::memcpy(edge, x, sizeof(T) * static_cast<std::size_t>(count));
  return hn::Load(d, edge);
#endif
}
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void store_some(D d, hn::Vec<D> v, T* y, std::int64_t count) {
  constexpr std::int64_t N = HWY_LANES(T);
  if (count >= N) return hn::StoreU(v, d, y);
#if HWY_ARCH_X86
  hn::BlendedStore(v, hn::FirstN(d, static_cast<std::size_t>(count)), d, y);
#else
  alignas(64) T edge[N];
  hn::Store(v, d, edge);
  std::memcpy(y, edge, sizeof(T) * static_cast<std::size_t>(count));
#endif
}

/// Adds the lanes of a vector by halves (8, 4, 2, 1): the end of the tree of a block's 16 partial sums.
template <class D>
HWY_INLINE hn::TFromD<D> close_lanes(D, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) == 1) {
    return hn::GetLane(v);
  } else {
    const hn::Half<D> half;
    return close_lanes(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

/// Adds block sums in a pairwise tree whose left side has the largest power of two below the count.
template <typename Value>
struct BlockTree {
  Value stack[48];  // sums of 2^level blocks that wait for their right neighbour, like the bits of a binary counter
  int depth = 0;
  std::int64_t blocks = 0;

  // not defaulted: an implicit constructor would not be compiled for this target
  HWY_INLINE BlockTree() {}

  template <typename Add>
  HWY_INLINE void push(Value sum, Add add) {
    for (std::int64_t bit = blocks++; (bit & 1) != 0; bit >>= 1) sum = add(stack[--depth], sum);
    stack[depth++] = sum;
  }
  template <typename Add>
  HWY_INLINE Value total(Add add) {
    Value sum = stack[--depth];
    while (depth > 0) sum = add(stack[--depth], sum);
    return sum;
  }
};

/// Computes SUMS sums over n elements in the order of kernels/ref/rows.cc; its 16 partial sums are the lanes of one or
/// more vectors. `add(partial, i, count)` adds `count` elements from i on to partial[s], a vector for each sum s, and
/// leaves the other lanes unchanged. Partial sums are never -0, so adding +0 leaves them unchanged.
template <typename T, int SUMS, typename Add>
HWY_INLINE void tree_sums(std::int64_t n, T (&sums)[SUMS], Add add) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t N = HWY_LANES(T), block = 4096;
  constexpr int vectors = 16 / static_cast<int>(N);
  BlockTree<T> tree[SUMS];
  const auto plus = [](T a, T b) HWY_ATTR { return a + b; };
  for (std::int64_t start = 0; start < n; start += block) {
    const std::int64_t end = n - start < block ? n : start + block;
    hn::Vec<decltype(d)> partial[vectors][SUMS];
    _Pragma("GCC unroll 8") for (int v = 0; v < vectors; ++v) _Pragma("GCC unroll 2") for (int s = 0; s < SUMS; ++s)
        partial[v][s] = hn::Zero(d);
    std::int64_t i = start;
    for (; i + 16 <= end; i += 16) {
      _Pragma("GCC unroll 8") for (int v = 0; v < vectors; ++v) add(partial[v], i + v * N, N);
    }
    _Pragma("GCC unroll 8") for (int v = 0; v < vectors; ++v) {
      if (i + v * N < end) add(partial[v], i + v * N, end - i - v * N < N ? end - i - v * N : N);
    }
    _Pragma("GCC unroll 2") for (int s = 0; s < SUMS; ++s) {
      _Pragma("GCC unroll 4") for (int half = vectors / 2; half > 0; half /= 2)
          _Pragma("GCC unroll 4") for (int v = 0; v < half; ++v) partial[v][s] =
              hn::Add(partial[v][s], partial[v + half][s]);
      tree[s].push(close_lanes(d, partial[0][s]), plus);
    }
  }
  for (int s = 0; s < SUMS; ++s) sums[s] = n > 0 ? tree[s].total(plus) : T(0);
}

/// Computes a single sum; `add(partial, i, count)` returns the new partial sums.
template <typename T, typename Add>
HWY_INLINE T tree_sum(std::int64_t n, Add add) {
  using V = hn::Vec<hn::ScalableTag<T>>;
  T sum[1];
  tree_sums<T, 1>(n, sum, [&](V(&partial)[1], std::int64_t i, std::int64_t count) HWY_ATTR {
    partial[0] = add(partial[0], i, count);
  });
  return sum[0];
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
