// src/kernels/gemm/pack-inl.h: packs operands in the order in which tiles read them: B in panels of columns, A in tiles
// where it cannot be read in place.
#if defined(ATTN_GEMM_PACK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_GEMM_PACK_INL_H
#undef ATTN_GEMM_PACK_INL_H
#else
#define ATTN_GEMM_PACK_INL_H
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <type_traits>

#include "kernels/gemm/blocks-inl.h"
#include "kernels/gemm/tile-inl.h"
#include "kernels/gemm/transpose_words-inl.h"
#include "kernels/reference.h"
#include "kernels/simd/transpose-inl.h"
#include "kernels/simd/widen-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
namespace hn = hwy::HWY_NAMESPACE;

/// Packing that reads a short run of each row prefetches this many rows ahead: the hardware prefetcher does not follow
/// short runs at a large stride.
inline constexpr int rows_ahead = 12;

/// The items that are widened at a time into a buffer on the stack, along k or along a row of B: the rows that are used
/// together have a few KB.
inline constexpr int wide_items = 64;

/// Computes to[r][i] = from[r][i] for r < rows, i < items; strides in elements. `half`: bf16 or f16. A NaN may become
/// quiet; a sum with a NaN becomes the canonical NaN anyway.
HWY_NOINLINE void widen_rows(Element half, const void* from, std::int64_t from_stride, std::int64_t rows,
                             std::int64_t items, float* to, std::int64_t to_stride) {
  for (std::int64_t r = 0; r < rows; ++r)
    widen_half_row(half, static_cast<const std::uint16_t*>(from) + r * from_stride, items, to + r * to_stride);
}

/// Packs the columns of one panel, whose items are contiguous along k, as words [words][width].
template <class Kind>
HWY_NOINLINE void pack_transposed(const typename Kind::Item* from, std::int64_t column_stride, int columns,
                                  std::int64_t items, int width, typename Kind::Word* to) {
  using Item = typename Kind::Item;
  const std::int64_t words = items / Kind::depth;
  std::int64_t done_words = 0;
  int done_columns = 0;
#if HWY_TARGET == HWY_AVX3
  if constexpr (sizeof(typename Kind::Word) == 4) {
    done_words = words / 16 * 16;
    for (; done_columns + 16 <= columns; done_columns += 16) {
      const char* row = reinterpret_cast<const char*>(from + done_columns * column_stride);
      for (std::int64_t w = 0; w < done_words; w += 16) {
        __m512 transposed[16];
        transpose_words(row + 4 * w, column_stride * static_cast<std::int64_t>(sizeof(Item)), transposed);
        _Pragma("GCC unroll 16") for (int i = 0; i < 16; ++i)
            _mm512_store_ps(reinterpret_cast<float*>(to + (w + i) * width + done_columns), transposed[i]);
      }
    }
  }
#endif
  if constexpr (Kind::depth == 1) {
    if (done_words < words)
      transpose(from + done_words, column_stride, std::int64_t{done_columns}, words - done_words,
                to + done_words * width, std::int64_t{width});
    transpose(from + done_columns * column_stride, column_stride, std::int64_t{columns - done_columns}, words,
              to + done_columns, std::int64_t{width});
  } else {
    for (int c = 0; c < columns; ++c) {
      const Item* column = from + c * column_stride;
      for (std::int64_t w = c < done_columns ? done_words : 0; w < words; ++w)
        to[w * width + c] = Kind::word(column + w * Kind::depth, column + w * Kind::depth + 1);
      if (items % Kind::depth != 0) to[words * width + c] = Kind::word(column + words * Kind::depth, nullptr);
    }
  }
}

/// Widens `columns` columns of a 16-bit B, from `from` on, to f32 and packs them.
HWY_NOINLINE void pack_halves(const GemmProblem& p, const std::uint16_t* from, int columns, std::int64_t items,
                              int width, float* to) {
  constexpr int most_columns = gemm_vectors * static_cast<int>(HWY_LANES(float)), wide_stride = wide_items + 16;
  const std::int64_t down = p.b_stride[0], along = p.b_stride[1];
  if (down == 1 && along != 1) {  // contiguous along k: a few cache lines of each column at a time
    alignas(64) float wide[most_columns * wide_stride];
    for (std::int64_t i = 0; i < items; i += wide_items) {
      const std::int64_t count = items - i < wide_items ? items - i : wide_items;
      widen_rows(p.b_element, from + i, along, columns, count, wide, wide_stride);
      pack_transposed<Plain<float>>(wide, wide_stride, columns, count, width, to + i * width);
    }
    return;
  }
  std::uint16_t row[most_columns];
  for (std::int64_t i = 0; i < items; ++i, from += down) {
    for (int line = 0; along == 1 && line <= columns; line += 32) hwy::Prefetch(from + rows_ahead * down + line);
    for (int c = 0; along != 1 && c < columns; ++c) row[c] = from[c * along];
    widen_rows(p.b_element, along == 1 ? from : row, 0, 1, columns, to + i * width, 0);
  }
}

/// Packs items [k, k + items) of `columns` columns of B as words [words][width]; missing columns are 0.
template <class Kind>
HWY_NOINLINE void pack_panel(const GemmProblem& p, std::int64_t k, std::int64_t items, std::int64_t column, int columns,
                             int width, typename Kind::Word* to) {
  using Item = typename Kind::Item;
  const typename Kind::D d;
  constexpr int N = static_cast<int>(HWY_LANES(typename Kind::Sum));
  const std::int64_t down = p.b_stride[0], along = p.b_stride[1], first = k * down + column * along;
  const std::int64_t words = pieces_of(items, Kind::depth);
  if (columns < width)
    for (std::int64_t w = 0; w < words; ++w)
      for (int c = columns; c < width; ++c) to[w * width + c] = 0;
  if constexpr (sizeof(typename Kind::Word) == 4) {
    if (p.has_blocks())
      return with_loader(p.b_blocks, [&](auto loader) HWY_ATTR {
        pack_blocks<Kind, typename decltype(loader)::Type>(p, k, items, column, columns, width, to);
      });
  }
  if constexpr (std::is_same_v<Item, float>) {
    if (p.has_half_b())
      return pack_halves(p, static_cast<const std::uint16_t*>(p.b) + first, columns, items, width, to);
  }
  const Item* from = static_cast<const Item*>(p.b) + first;
  if (down == 1 && along != 1) return pack_transposed<Kind>(from, along, columns, items, width, to);
  for (std::int64_t w = 0; w < words; ++w, from += Kind::depth * down) {
    const Item* second = Kind::depth == 2 && 2 * w + 1 < items ? from + down : nullptr;
    int c = 0;
    if (along == 1) {
      for (int line = 0; line <= columns; line += 64 / static_cast<int>(sizeof(Item)))
        for (int row = 0; row < Kind::depth; ++row) hwy::Prefetch(from + (rows_ahead + row) * down + line);
      for (; c + N <= columns; c += N)
        hn::Store(Kind::words(from + c, second ? second + c : nullptr), d, to + w * width + c);
    }
    for (; c < columns; ++c) to[w * width + c] = Kind::word(from + c * along, second ? second + c * along : nullptr);
  }
}

/// The padding between two packed tiles of A, in words: whole-vector stores write up to this many words beyond a tile's
/// row.
inline constexpr std::int64_t tile_pad = 16;

/// Packs `rows` rows of A as tiles of [words][rows of the tile]. Tile t begins at tile_pad * t + words * (rows of the
/// tiles before it).
template <class Kind>
HWY_NOINLINE void pack_tiles(const GemmProblem& p, std::int64_t row, std::int64_t rows, std::int64_t tiles,
                             std::int64_t k, std::int64_t items, typename Kind::Word* to) {
  using Item = typename Kind::Item;
  const typename Kind::D d;
  constexpr int N = static_cast<int>(HWY_LANES(typename Kind::Sum));
  const std::int64_t along = p.a_stride[0], down = p.a_stride[1], words = pieces_of(items, Kind::depth);
  const Item* from = static_cast<const Item*>(p.a) + row * along + k * down;
  for (std::int64_t w = 0; w < words; ++w, from += Kind::depth * down) {
    const Item* second = Kind::depth == 2 && 2 * w + 1 < items ? from + down : nullptr;
    if (along == 1)
      for (std::int64_t line = 0; line < rows; line += 64 / static_cast<int>(sizeof(Item)))
        for (int r = 0; r < Kind::depth; ++r) hwy::Prefetch(from + (rows_ahead + r) * down + line);
    // the split of even_cut, without a division in every step
    const std::int64_t least = rows / tiles, wider = rows % tiles;
    for (std::int64_t t = 0, first = 0, count; t < tiles; ++t, first += count) {
      count = least + (t < wider);
      typename Kind::Word* tile = to + first * words + t * tile_pad + w * count;
      // stores whole vectors: words beyond the tile's row are overwritten later or never read
      if (along == 1 && first + gemm_rows + N <= rows) {
        for (int i = 0; i < gemm_rows; i += N)
          hn::StoreU(Kind::words(from + first + i, second ? second + first + i : nullptr), d, tile + i);
      } else {
        for (std::int64_t i = 0; i < count; ++i)
          tile[i] = Kind::word(from + (first + i) * along, second ? second + (first + i) * along : nullptr);
      }
    }
  }
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
