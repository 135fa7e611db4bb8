// src/kernels/simd/register_tile-inl.h: defines the register tile of matrix products with vectors, in attention and
// gemm (decode and products of up to 8 rows have their own loops): each step of k multiplies ROWS broadcast words by
// VECTORS vectors; all sums stay in registers.
#if defined(ATTN_REGISTER_TILE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_REGISTER_TILE_INL_H
#undef ATTN_REGISTER_TILE_INL_H
#else
#define ATTN_REGISTER_TILE_INL_H
#endif

#include <cstdint>
#include <cstring>

#include "kernels/simd/multiply_add-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// The `prefetch` of a register tile that prefetches nothing.
struct NoPrefetch {
  template <typename Word>
  HWY_INLINE void operator()(const Word*) const {}
};

/// ROWS x VECTORS sums, each a chain over k. They begin at 0. Mac is the multiply-accumulate step
/// (multiply_add-inl.h).
template <class Mac, int ROWS, int VECTORS>
struct RegisterTile {
  using Sum = typename Mac::Sum;
  Vector<Sum> sum[ROWS][VECTORS];

  HWY_INLINE RegisterTile() {
    ATTN_UNROLL_FOR (int r = 0; r < ROWS; ++r)
      ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) sum[r][v] = hn::Zero(Tag<Sum>());
  }

  /// Adds steps n in [begin, end) to the sums of vectors [FIRST, LAST). A step multiplies the word `left(row, n)`,
  /// broadcast to all lanes, by the vectors at x + n * stride. Each step calls `prefetch` with the address of its
  /// vectors.
  template <int FIRST = 0, int LAST = VECTORS, class Left, typename Word, class Prefetch = NoPrefetch>
  HWY_INLINE void add(const Left& left, const Word* HWY_RESTRICT x, std::int64_t stride, std::int64_t begin,
                      std::int64_t end, Prefetch prefetch = {}) {
    static_assert(sizeof(Word) == sizeof(Sum));
    const Tag<Sum> d;
    x += begin * stride;
    // the loop counts down: if it counted up, GCC 12 would keep a copy of the sums of large tiles on the stack
    _Pragma("GCC unroll 2") for (std::int64_t n = begin, steps = end - begin; steps > 0; --steps, ++n, x += stride) {
      const auto* const at = reinterpret_cast<const Sum*>(x);
      prefetch(at);
      Vector<Sum> right[VECTORS];
      ATTN_UNROLL_FOR (int v = FIRST; v < LAST; ++v) right[v] = hn::LoadU(d, at + v * lanes<Sum>);
      ATTN_UNROLL_FOR (int r = 0; r < ROWS; ++r) {
        const auto one = Mac::broadcast(left(r, n));
        ATTN_UNROLL_FOR (int v = FIRST; v < LAST; ++v) sum[r][v] = Mac::step(one, right[v], sum[r][v]);
      }
    }
  }

  /// Stores the sums to aligned rows that are `stride` elements apart.
  HWY_INLINE void store(Sum* to, std::int64_t stride) const {
    ATTN_UNROLL_FOR (int r = 0; r < ROWS; ++r)
      ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) hn::Store(sum[r][v], Tag<Sum>(), to + r * stride + v * lanes<Sum>);
  }
};

/// Returns the word at an address that need not be aligned.
template <typename Word>
HWY_INLINE Word word_at(const void* address) {
  Word word;
  std::memcpy(&word, address, sizeof word);
  return word;
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
