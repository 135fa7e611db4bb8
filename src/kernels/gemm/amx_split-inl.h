// src/kernels/gemm/amx_split-inl.h: splits a bf16 product for AMX tiles: which operand is packed, the
// parts, their scratch memory.
#if defined(ATTN_GEMM_AMX_SPLIT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_GEMM_AMX_SPLIT_INL_H
#undef ATTN_GEMM_AMX_SPLIT_INL_H
#else
#define ATTN_GEMM_AMX_SPLIT_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <utility>

#include "kernels/gemm/amx_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET == HWY_AVX3 && defined(__x86_64__)
namespace hn = hwy::HWY_NAMESPACE;

/// How a product is split for AMX tiles. One operand is read as rows of k, in place if its rows are contiguous. The
/// other is packed as [group of 16 columns][unit of k][pair of k][column]. If b's items are contiguous along k and a
/// has few rows, y is computed transposed: b supplies the rows, in place, and a is packed.
struct AmxSplit {
  GemmProblem p;  // a and b, swapped if y is computed transposed
  bool transposed = false, pack_a;
  bool by_vectors;  // so few rows that vectors compute them: interleaving b for the tiles would take most of the time
  bool few;         // few rows times contiguous rows of b: packing b takes most of the time
  std::int64_t panels, units, chunk, group, row_parts = 1, panel_parts = 1;

  static bool runs(const GemmProblem& p, std::int64_t stride) { return stride == 1 || p.k <= 1; }
  AmxSplit(const GemmProblem& problem, bool packed) : p(problem) {
    if (!packed && runs(p, p.b_stride[0]) && p.m <= transposed_rows_most) {
      transposed = true;
      std::swap(p.a, p.b);
      std::swap(p.m, p.n);
      std::swap(p.a_stride[0], p.b_stride[1]);
      std::swap(p.a_stride[1], p.b_stride[0]);
    }
    pack_a = !runs(p, p.a_stride[1]);
    panels = pieces_of(p.n, amx_panel);
    units = pieces_of(p.k, tile_items);
    const std::int64_t work = p.m * p.n * p.k;
    by_vectors = !packed && !transposed && p.b_stride[1] == 1 && p.m <= vector_rows_most;
    few = !packed && !transposed && p.b_stride[1] == 1 && p.m <= transposed_rows_most;
    chunk = std::clamp<std::int64_t>(units, 1, few ? block_units : amx_chunk_units);
    group =
        std::max<std::int64_t>(1, std::min(panels, few ? amx_group : amx_columns_bytes / (chunk * 2 * amx_tile_bytes)));
    const std::int64_t of_rows = std::clamp<std::int64_t>(
        (transposed ? transposed_rows_bytes : packed_rows_bytes) / (2 * p.k + 2) / 32 * 32 + 32, 64,
        transposed_part_rows);
    row_parts = pieces_of(p.m, transposed || pack_a ? of_rows : chunk < units ? amx_part_rows : p.m + 1);
    std::int64_t wanted = std::min(std::max(wanted_parts, 2 * p.threads), work / least_amx_work);
    if (problem.m <= transposed_rows_most)  // reading b takes most of the time
      wanted = std::max(wanted, std::min(most_few_rows_parts, 2 * problem.n * p.k / few_rows_part_bytes));
    // the minimum number of panels of a part
    const std::int64_t least_panels = few ? amx_group / 2 : problem.m <= transposed_rows_most ? 1 : amx_part_panels;
    while (parts() < wanted) {
      const bool high = p.m >= 64 * row_parts,
                 tall = high && (packed || transposed || p.m >= 2 * unpacked_part_rows * row_parts);
      const bool wide = panels >= 2 * least_panels * panel_parts,
                 enough = parts() >= std::max(few_amx_parts, p.threads);
      const bool columns_first = p.n >= p.m || (!packed && row_parts == 2);  // at most two parts pack the same columns
      if (pack_a) {
        if (p.m >= 2 * packed_rows_least * row_parts) row_parts *= 2;
        else if (p.n >= 2 * packed_columns_least * panel_parts) panel_parts *= 2;
        else if (enough) break;
        else if (high && (row_parts == 1 || panels < 2 * panel_parts)) row_parts *= 2;
        else if (panels >= 2 * panel_parts) panel_parts *= 2;
        else break;
      } else if (wide && !transposed && (columns_first || !high)) {
        panel_parts *= 2;
      } else if (tall && !(columns_first && enough)) {
        row_parts *= 2;
      } else if (panels >= 2 * panel_parts && !enough) {
        panel_parts *= 2;
      } else if (high && !enough) {
        row_parts *= 2;
      } else {
        break;
      }
    }
  }
  std::int64_t parts() const { return row_parts * panel_parts; }
  /// Returns whether all threads pack the columns once before the product, instead of every part packing those that it
  /// needs.
  bool packs_before() const { return !transposed && p.m > transposed_rows_most && row_parts > 2; }
  std::int64_t tiles() const { return pieces_of(pieces_of(p.m, row_parts), tile_rows); }  // tiles of rows of a part
  /// Returns the words per row of packed columns: a tile's, or fewer if the product has fewer columns.
  int width() const { return static_cast<int>(std::min<std::int64_t>(p.n, tile_pairs)); }
  std::int64_t tile_words() const { return std::int64_t{tile_pairs} * width(); }

  // the scratch memory holds packed columns; then packed rows of a, or only their incomplete last unit; then totals,
  // for all rows of a part if k has several chunks
  std::int64_t b_bytes(bool packed) const {
    return packed ? 0 : 4 * amx_panel * tile_pairs * (transposed ? panels * units : group * chunk);
  }
  std::int64_t a_bytes() const { return tiles() * amx_tile_bytes * (pack_a ? units : p.k % tile_items != 0); }
  std::int64_t total_tiles() const { return transposed || chunk == units ? 2 : tiles() + 1; }
  std::size_t scratch_bytes(bool packed) const {
    if (by_vectors) return static_cast<std::size_t>(2 * 4 * p.m * pieces_of(panels, panel_parts) * amx_panel);
    return static_cast<std::size_t>(b_bytes(packed) + a_bytes() +
                                    (p.k > k_block ? 4 * group * total_tiles() * tile_rows * amx_panel : 0));
  }
};

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
