// src/kernels/rows/lanes-inl.h: vectors at the ends of arrays, and the sum along a row in its one order.
#if defined(ATTN_ROWS_LANES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_ROWS_LANES_INL_H
#undef ATTN_ROWS_LANES_INL_H
#else
#define ATTN_ROWS_LANES_INL_H
#endif

#include <hwy/highway.h>

#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
namespace hn = hwy::HWY_NAMESPACE;

/// The first `count` (0 to all) lanes from memory, the others 0; nothing beyond them is read.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load_some(D d, const T* x, std::int64_t count) {
  constexpr std::int64_t N = HWY_LANES(T);
  if (count >= N) return hn::LoadU(d, x);
  alignas(64) T edge[N] = {};
  if (count > 0) std::memcpy(edge, x, sizeof(T) * static_cast<std::size_t>(count));  // an empty row may be null
  return hn::Load(d, edge);
}
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void store_some(D d, hn::Vec<D> v, T* y, std::int64_t count) {
  constexpr std::int64_t N = HWY_LANES(T);
  if (count >= N) return hn::StoreU(v, d, y);
  alignas(64) T edge[N];
  hn::Store(v, d, edge);
  std::memcpy(y, edge, sizeof(T) * static_cast<std::size_t>(count));
}

/// The 16 partial sums of a block closed by the tree 8, 4, 2, 1.
template <typename T>
HWY_INLINE T close_block(T (&partial)[16]) {
  for (int half = 8; half > 0; half /= 2)
    for (int lane = 0; lane < half; ++lane) partial[lane] += partial[lane + half];
  return partial[0];
}

/// Block sums joined by a pairwise tree that gives the left side the largest power of two below the count.
template <typename Value>
struct BlockTree {
  Value stack[48];  // sums of 2^level blocks that wait for their right neighbour: like the bits of a counter
  int depth = 0;
  std::int64_t blocks = 0;

  HWY_INLINE BlockTree() {}  // written, so that it is of this target as the vectors' own are

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

/// Sum of n elements in the order of kernels/ref/rows.cc: lanes are its 16 partial sums. `add(partial, i, count)` takes `count`
/// elements from i on in, leaving the other lanes as they are; they are never -0, so that may be an addition of +0.
template <typename T, typename Add>
HWY_INLINE T tree_sum(std::int64_t n, Add add) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t N = HWY_LANES(T), block = 4096;
  constexpr int vectors = 16 / static_cast<int>(N);
  BlockTree<T> tree;
  const auto plus = [](T a, T b) HWY_ATTR { return a + b; };
  for (std::int64_t start = 0; start < n; start += block) {
    const std::int64_t end = n - start < block ? n : start + block;
    hn::Vec<decltype(d)> partial[vectors];
    _Pragma("GCC unroll 8") for (int v = 0; v < vectors; ++v) partial[v] = hn::Zero(d);
    std::int64_t i = start;
    for (; i + 16 <= end; i += 16) {
      _Pragma("GCC unroll 8") for (int v = 0; v < vectors; ++v) partial[v] = add(partial[v], i + v * N, N);
    }
    _Pragma("GCC unroll 8") for (int v = 0; v < vectors; ++v) {
      if (i + v * N < end) partial[v] = add(partial[v], i + v * N, end - i - v * N < N ? end - i - v * N : N);
    }
    alignas(64) T lanes[16];
    _Pragma("GCC unroll 8") for (int v = 0; v < vectors; ++v) hn::Store(partial[v], d, lanes + v * N);
    tree.push(close_block(lanes), plus);
  }
  return n > 0 ? tree.total(plus) : T(0);
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
