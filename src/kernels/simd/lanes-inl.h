// src/kernels/simd/lanes-inl.h: defines the vectors of the compiled target: their lanes, and their number in a register
// tile.
#if defined(ATTN_LANES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_LANES_INL_H
#undef ATTN_LANES_INL_H
#else
#define ATTN_LANES_INL_H
#endif

#include <hwy/highway.h>

#include <limits>

#define ATTN_UNROLL_FOR(...) _Pragma("GCC unroll 16") for (__VA_ARGS__)
#define ATTN_ROLLED _Pragma("GCC unroll 1")  // for loops over small arrays, which GCC would otherwise unroll completely

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
namespace hn = hwy::HWY_NAMESPACE;

template <typename T>
using Tag = hn::ScalableTag<T>;
template <typename T>
using Vector = hn::Vec<Tag<T>>;
template <typename T>
inline constexpr int lanes = static_cast<int>(HWY_LANES(T));
/// The number of vector registers, and of vectors in a row of a register tile: 2 with 16 registers (6 x 2
/// accumulators), 4 with 32 registers (6 x 4).
inline constexpr int registers = HWY_TARGET == HWY_AVX2 ? 16 : 32;
inline constexpr int tile_vectors = registers == 16 ? 2 : 4;

template <typename T>
HWY_INLINE Vector<T> minus_infinity() {
  return hn::Set(Tag<T>(), -std::numeric_limits<T>::infinity());
}

/// Splits the vectors [first, last) into the widest register tiles that fit: visit<VECTORS>(vector).
template <typename F>
HWY_INLINE void for_each_tile(int first, int last, F&& visit) {
  for (int v = first; v < last;) {
    const int left = last - v < tile_vectors ? last - v : tile_vectors;
    if constexpr (tile_vectors > 2) {
      if (left == 4) visit.template operator()<4>(v);
      if (left == 3) visit.template operator()<3>(v);
    }
    if (left == 2) visit.template operator()<2>(v);
    if (left == 1) visit.template operator()<1>(v);
    v += left;
  }
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
