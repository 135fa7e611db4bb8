// src/kernels/gemm/gemm_part-inl.h: computes one part of a product: packs panels of B (and A where needed), and
// multiplies them tile by tile.
#if defined(ATTN_GEMM_GEMM_PART_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_GEMM_GEMM_PART_INL_H
#undef ATTN_GEMM_GEMM_PART_INL_H
#else
#define ATTN_GEMM_GEMM_PART_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "kernels/gemm/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
namespace hn = hwy::HWY_NAMESPACE;

/// Splits one product: columns into panels of whole vectors, panels and rows into parts, k into chunks of whole
/// blocks.
template <class Kind>
struct GemmSplit {
  using Word = typename Kind::Word;
  using Sum = typename Kind::Sum;
  static constexpr int N = static_cast<int>(HWY_LANES(Sum)), panel = gemm_vectors * N;
  const GemmProblem& p;
  std::int64_t vectors = pieces_of(p.n, N);
  std::int64_t panels = panels_of(vectors, gemm_vectors);
  /// Whether A is packed. f32, f64: if its rows are not contiguous and its columns are direct_bytes or more apart.
  /// bf16: if its rows are not contiguous, or an odd last item has to be paired with 0.
  bool pack_a = Kind::depth > 1
                    ? p.a_stride[1] != 1 || p.k % Kind::depth != 0
                    : p.a_stride[1] != 1 &&
                          p.a_stride[1] * static_cast<std::int64_t>(sizeof(typename Kind::Item)) >= direct_bytes;
  PartGrid grid;
  std::int64_t row_parts = grid.row_parts, column_parts = grid.column_parts;
  std::int64_t chunk = (pack_a ? packed_chunk_words : chunk_words) * Kind::depth;
  bool totals_beside = p.narrow && p.k > chunk;  // a bf16 y cannot hold partial totals

  GemmSplit(const GemmProblem& problem, bool packed)
      : p(problem),
        grid(!pack_a || (!packed && own_b() == 0)
                 ? part_grid(p.m, panels, p.m * p.n * p.k, p.n * p.k * stored_bytes<Kind>(p), pack_a, p.threads)
             : packed ? part_grid_of_rows(p.m, p.m * p.n * p.k, p.threads)
                      : PartGrid{own_b(), 1}) {}
  std::int64_t own_b() const { return parts_with_b(p.m, p.m * p.n * p.k, p.threads); }
  std::int64_t parts() const { return column_parts * row_parts; }
  std::int64_t chunk_words_of() const { return pieces_of(std::min(p.k, chunk), Kind::depth); }
  std::int64_t first_vector(std::int64_t q) const { return even_cut(vectors, panels, q); }

  /// Returns the number of panels of B in a group. Each row tile of A is multiplied by all panels of a group before the
  /// next tile. A group fits in L2, and a row of A is loaded into L1 once for each group.
  std::int64_t group() const {
    const std::int64_t bytes = chunk_words_of() * panel * static_cast<std::int64_t>(sizeof(Word));
    return std::clamp<std::int64_t>(group_bytes / std::max<std::int64_t>(bytes, 1), 1,
                                    std::min(most_group_panels, pieces_of(panels, column_parts)));
  }

  // the scratch memory holds a group of panels of B, then tiles of A, then totals
  std::int64_t b_words() const { return chunk_words_of() * panel * group(); }
  std::int64_t a_words() const {
    const std::int64_t rows = pieces_of(p.m, row_parts);
    return pack_a ? (rows * chunk_words_of() + tile_pad * (rows / 2 + 2) + 15) / 16 * 16 : 0;
  }
  std::int64_t total_stride() const { return pieces_of(panels, column_parts) * panel; }
  std::size_t scratch_bytes() const {
    const std::int64_t totals = totals_beside ? pieces_of(p.m, row_parts) * total_stride() : 0;
    return sizeof(Word) * static_cast<std::size_t>(b_words() + a_words()) +
           sizeof(Sum) * static_cast<std::size_t>(totals);
  }
};

/// Consecutive panels of B, and their biases.
template <class Kind>
struct PanelGroup {
  struct Panel {
    const typename Kind::Word* b;
    std::int64_t column;
    int vectors, columns;  // columns: those that exist in B
  };
  Panel panel[most_group_panels];
  alignas(64) typename Kind::Sum bias[most_group_panels * GemmSplit<Kind>::panel];
  int count = 0;

  /// Takes panels [first, end) of items [k, k + items) from `packed`; if `packed` is null, packs them to `here`.
  PanelGroup(const GemmProblem& p, const GemmSplit<Kind>& cut, std::int64_t first, std::int64_t end, std::int64_t k,
             std::int64_t items, const void* packed, typename Kind::Word* here) {
    using Sum = typename Kind::Sum;
    for (std::int64_t q = first; q < end; ++q, ++count) {
      const std::int64_t column = cut.first_vector(q) * cut.N;
      const int vectors = static_cast<int>(cut.first_vector(q + 1) - cut.first_vector(q)), width = vectors * cut.N;
      const int columns = static_cast<int>(std::min<std::int64_t>(p.n - column, width));
      panel[count] = {here, column, vectors, columns};
      if (packed) {
        panel[count].b = static_cast<const typename Kind::Word*>(packed) + column * pieces_of(p.k, Kind::depth) +
                         k / Kind::depth * width;
      } else {
        pack_panel<Kind>(p, k, items, column, columns, width, here);
        here += pieces_of(items, Kind::depth) * width;
      }
      if (p.bias == nullptr) continue;
      Sum* const to = bias + count * cut.panel;
      std::memcpy(to, static_cast<const Sum*>(p.bias) + column, sizeof(Sum) * static_cast<std::size_t>(columns));
      std::fill(to + columns, to + width, Sum(0));
    }
  }
};

/// Computes one part of a product. B comes from `packed` (all panels and words, written by `pack`); if that is null,
/// the part packs B itself.
template <class Kind>
void gemm_part(const GemmProblem& p, std::int64_t part, void* scratch, const void* packed) {
  using Word = typename Kind::Word;
  using Sum = typename Kind::Sum;
  using Item = typename Kind::Item;
  const GemmSplit<Kind> cut(p, packed != nullptr);
  const std::int64_t column_part = part % cut.column_parts, row_part = part / cut.column_parts;
  const std::int64_t row = even_cut(p.m, cut.row_parts, row_part), row_end = even_cut(p.m, cut.row_parts, row_part + 1);
  const std::int64_t first_panel = even_cut(cut.panels, cut.column_parts, column_part),
                     last_panel = even_cut(cut.panels, cut.column_parts, column_part + 1);
  Word* const b_here = static_cast<Word*>(scratch);
  Word* const a_here = b_here + cut.b_words();
  Sum* const totals = reinterpret_cast<Sum*>(a_here + cut.a_words());
  const std::int64_t tiles = pieces_of(row_end - row, gemm_rows);
  for (std::int64_t k = 0; k == 0 || k < p.k; k += cut.chunk) {
    const std::int64_t items = std::min(p.k - k, cut.chunk), words = pieces_of(items, Kind::depth);
    if (cut.pack_a) pack_tiles<Kind>(p, row, row_end - row, tiles, k, items, a_here);
    for (std::int64_t first = first_panel; first < last_panel; first += cut.group()) {
      const PanelGroup<Kind> group(p, cut, first, std::min(first + cut.group(), last_panel), k, items, packed, b_here);
      GemmTile<Kind> tile;
      tile.k = items;
      tile.first = k == 0;
      tile.last = k + cut.chunk >= p.k;
      tile.narrow = p.narrow;
      tile.activation = p.activation;
      tile.y_stride = p.y_stride[0];
      tile.total_stride = cut.totals_beside ? cut.total_stride() : p.y_stride[0];
      for (std::int64_t t = 0; t < tiles; ++t) {
        const std::int64_t begin = row + even_cut(row_end - row, tiles, t),
                           end = row + even_cut(row_end - row, tiles, t + 1);
        for (std::int64_t i = begin; i < end;) {
          const int height = height_within<Kind>(static_cast<int>(end - i));
          if (cut.pack_a) {
            tile.a = reinterpret_cast<const char*>(a_here + (begin - row) * words + t * tile_pad + (i - begin));
            tile.a_stride = sizeof(Word);
            tile.a_step = (end - begin) * static_cast<std::int64_t>(sizeof(Word));
          } else {
            tile.a =
                reinterpret_cast<const char*>(static_cast<const Item*>(p.a) + i * p.a_stride[0] + k * p.a_stride[1]);
            tile.a_stride = p.a_stride[0] * static_cast<std::int64_t>(sizeof(Item));
            tile.a_step = p.a_stride[1] * Kind::depth * static_cast<std::int64_t>(sizeof(Item));
          }
          for (int q = 0; q < group.count; ++q) {
            const auto& panel = group.panel[q];
            tile.b = panel.b;
            tile.columns = panel.columns;
            tile.bias = tile.last && p.bias ? group.bias + q * cut.panel : nullptr;
            const std::int64_t at = i * p.y_stride[0] + panel.column;
            tile.y = p.narrow ? static_cast<void*>(static_cast<std::uint16_t*>(p.y) + at) : static_cast<Sum*>(p.y) + at;
            tile.total = cut.totals_beside
                             ? totals + (i - row) * tile.total_stride + (first + q - first_panel) * cut.panel
                             : static_cast<Sum*>(tile.y);
            gemm_tile_of<Kind>(height, panel.vectors)(tile);
          }
          i += height;
        }
      }
    }
  }
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
