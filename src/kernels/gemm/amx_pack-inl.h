// src/kernels/gemm/amx_pack-inl.h: packs operands of a bf16 product as AMX tiles read them.
#if defined(ATTN_GEMM_AMX_PACK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_GEMM_AMX_PACK_INL_H
#undef ATTN_GEMM_AMX_PACK_INL_H
#else
#define ATTN_GEMM_AMX_PACK_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "kernels/gemm/amx_split-inl.h"
#include "kernels/gemm/pack-inl.h"
#include "kernels/simd/interleave-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET == HWY_AVX3 && defined(__x86_64__)
namespace hn = hwy::HWY_NAMESPACE;

/// Packs items [k, k + items) of a panel; missing items of the last unit are 0. The second 16 columns begin `half`
/// words later. If the panel is complete and b's rows are contiguous, two rows at a time are interleaved here, and the
/// rows of the next unit are prefetched.
HWY_NOINLINE void pack_amx_panel(const GemmProblem& p, std::int64_t k, std::int64_t items, std::int64_t column,
                                 int columns, int width, float* to, std::int64_t half) {
  const std::int64_t pairs = pieces_of(items, 2), whole = pieces_of(items, tile_items) * tile_pairs,
                     down = p.b_stride[0];
  const bool weave = columns == amx_panel && p.b_stride[1] == 1;
  for (int c = 0; c < columns; c += tile_pairs) {
    float* const first = to + (c == 0 ? 0 : half);
    std::memset(first + pairs * width, 0, 4 * static_cast<std::size_t>((whole - pairs) * width));
    if (!weave) pack_panel<Pairs>(p, k, items, column + c, std::min(columns - c, tile_pairs), width, first);
  }
  if (!weave) return;
  const auto* from = static_cast<const std::uint16_t*>(p.b) + k * down + column;
  for (std::int64_t w = 0; w < pairs; ++w, from += 2 * down, to += tile_pairs) {
    _mm_prefetch(from + tile_items * down, _MM_HINT_T0);
    _mm_prefetch(from + (tile_items + 1) * down, _MM_HINT_T0);
    const __m512i first = _mm512_loadu_si512(from),
                  second = 2 * w + 1 < items ? _mm512_loadu_si512(from + down) : _mm512_setzero_si512();
    store_interleaved(first, second, to, half);
  }
}

/// Packs units [begin, end) of the panels [first, last). The first panel begins at `to`; each takes `2 * half` words,
/// its columns from 16 on begin `half` words later. If b's rows are contiguous, a unit of all panels is packed before
/// the next unit, so that rows are read at full length; otherwise panel after panel.
HWY_NOINLINE void pack_columns(const GemmProblem& p, const AmxSplit& cut, std::int64_t begin, std::int64_t end,
                               std::int64_t first, std::int64_t last, float* to, std::int64_t half) {
  const std::int64_t step = p.b_stride[1] == 1 ? 1 : end - begin;
  for (std::int64_t unit = begin; unit < end; unit += step)
    for (std::int64_t q = first; q < last; ++q) {
      const std::int64_t column = q * amx_panel, k = unit * tile_items;
      pack_amx_panel(p, k, std::min(p.k - k, step * tile_items), column,
                     static_cast<int>(std::min<std::int64_t>(p.n - column, amx_panel)), cut.width(),
                     to + 2 * (q - first) * half + (unit - begin) * cut.tile_words(), half);
    }
}

/// Returns the number of pieces into which the packing of all columns is split. A piece is some units of every panel if
/// b's rows are contiguous, else one panel.
HWY_INLINE std::int64_t packed_pieces(const AmxSplit& cut) {
  return cut.p.b_stride[1] == 1 ? pieces_of(cut.units, packed_piece_units) : cut.panels;
}
HWY_INLINE void pack_piece(const GemmProblem& p, const AmxSplit& cut, std::int64_t piece, float* packed) {
  const std::int64_t half = cut.units * cut.tile_words(), unit = piece * packed_piece_units;
  if (p.b_stride[1] != 1) return pack_columns(p, cut, 0, cut.units, piece, piece + 1, packed + 2 * piece * half, half);
  pack_columns(p, cut, unit, std::min(cut.units, unit + packed_piece_units), 0, cut.panels,
               packed + unit * cut.tile_words(), half);
}

/// Returns the first row of tile t of a part that has `rows` rows: the last tile may overlap the one before it, and
/// then computes the same rows again.
HWY_INLINE std::int64_t first_row(std::int64_t t, std::int64_t rows) {
  return std::max<std::int64_t>(0, std::min(tile_rows * t, rows - tile_rows));
}

/// Packs `rows` rows of a, from item k on, as tiles [tiles][units][16 rows of 64 bytes]; missing items of the last unit
/// are 0.
HWY_NOINLINE void pack_rows(const GemmProblem& p, std::int64_t row, std::int64_t rows, std::int64_t k, char* to) {
  const std::int64_t along = p.a_stride[0], down = p.a_stride[1], items = p.k - k, units = pieces_of(items, tile_items);
  for (std::int64_t t = 0; t < pieces_of(rows, tile_rows); ++t, to += units * amx_tile_bytes) {
    const auto* const from = static_cast<const std::uint16_t*>(p.a) + (row + first_row(t, rows)) * along + k * down;
    const int height = static_cast<int>(std::min<std::int64_t>(rows, tile_rows));
    std::int64_t whole = 0;
    if (along == 1 && height == tile_rows) {
      for (; whole < items / tile_items; ++whole) {
        const std::uint16_t* pair = from + whole * tile_items * down;
        alignas(64) float square[tile_pairs][tile_rows];
        for (int w = 0; w < tile_pairs; ++w, pair += 2 * down) {
          hwy::Prefetch(pair + tile_items * down);
          hwy::Prefetch(pair + (tile_items + 1) * down);
          hn::Store(Pairs::words(pair, pair + down), Pairs::D(), square[w]);
        }
        __m512 transposed[16];
        transpose_words(reinterpret_cast<const char*>(square), sizeof square[0], transposed);
        _Pragma("GCC unroll 16") for (int r = 0; r < tile_rows; ++r)
            _mm512_store_ps(to + whole * amx_tile_bytes + r * amx_row_bytes, transposed[r]);
      }
    }
    for (int r = 0; r < height; ++r) {
      const std::uint16_t* item = from + r * along + whole * tile_items * down;
      char* line = to + whole * amx_tile_bytes + r * amx_row_bytes;
      for (std::int64_t left = items - whole * tile_items; left > 0;
           left -= tile_items, line += amx_tile_bytes, item += tile_items * down) {
        if (down == 1 && left >= tile_items) {
          _mm512_store_ps(line, _mm512_loadu_ps(item));
          continue;
        }
        std::uint16_t few[tile_items] = {};
        for (std::int64_t c = 0; c < std::min<std::int64_t>(left, tile_items); ++c) few[c] = item[c * down];
        std::memcpy(line, few, sizeof few);
      }
    }
  }
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
