// src/kernels/attention/query_lanes-inl.h: defines the vectors of a query tile, and converts mask bits to lanes.
#if defined(ATTN_QUERY_LANES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_QUERY_LANES_INL_H
#undef ATTN_QUERY_LANES_INL_H
#else
#define ATTN_QUERY_LANES_INL_H
#endif

#include "kernels/attention/mask/active_vectors.h"
#include "kernels/attention/mask/mask_bits.h"
#include "kernels/attention/query_tile.h"
#include "kernels/prefetch/range_prefetch.h"
#include "kernels/simd/register_tile-inl.h"

#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// The number of vectors of a query tile.
template <typename T>
inline constexpr int query_tile_vectors = query_tile_rows<T> / lanes<T>;

/// Adds `left(row, n)` times the vectors of word n at x, for n in [0, words), to the sums of the tile. Lanes are query
/// rows. A word is one f32 or f64, or a pair of bf16. A tile of full height prefetches its share of `ahead` (null:
/// nothing): in its steps if it has four vectors, else before them, because a narrow tile is short.
template <class Mac, int ROWS, int VECTORS, class Left>
HWY_INLINE void add_words(RegisterTile<Mac, ROWS, VECTORS>& tile, const Left& left, const typename Mac::Word* x,
                          std::int64_t words, TilePrefetch* ahead) {
  constexpr bool whole = ROWS == tile_keys(VECTORS, registers);
  constexpr int R = query_tile_rows<typename Mac::Sum>;
  if constexpr (whole && VECTORS == 4) return tile.add(left, x, R, 0, words, spread(ahead, words, x));
  if (whole && ahead) ahead->fetch();
  tile.add(left, x, R, 0, words);
}

/// Returns the lanes of vector v whose bit is set in a word with one bit per row.
template <typename T>
HWY_INLINE hn::Mask<Tag<T>> lanes_of(Word word, int v) {
  alignas(8) std::uint8_t bits[8];
  const Word shifted = word >> (v * lanes<T>);
  std::memcpy(bits, &shifted, 8);
  return hn::LoadMaskBits(Tag<T>(), bits);
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
