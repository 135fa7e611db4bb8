// src/kernels/gemm/registers-inl.h: computes bf16 products by AMX tiles: 32 x 32 elements at a time, 32 items of k per
// step.
#if defined(ATTN_GEMM_REGISTERS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_GEMM_REGISTERS_INL_H
#undef ATTN_GEMM_REGISTERS_INL_H
#else
#define ATTN_GEMM_REGISTERS_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/gemm/pack-inl.h"
#include "kernels/gemm/register_block-inl.h"
#include "kernels/gemm/register_rows-inl.h"
#include "kernels/simd/interleave-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET == HWY_AVX3 && defined(__x86_64__)
namespace hn = hwy::HWY_NAMESPACE;

/// How a product is split for AMX tiles. One operand is read as rows of k, in place if its rows are contiguous. The
/// other is packed as [16 columns][units of k][pairs of k][column]. If b's items are contiguous along k and a has few
/// rows, y is computed transposed: b supplies the rows, in place, and a is packed.
struct RegisterCut {
  GemmProblem p;  // a and b, swapped if y is computed transposed
  bool transposed = false, pack_a;
  bool by_vectors;  // so few rows that interleaving b for the tiles would take most of the time
  bool few;         // few rows times contiguous rows of b: packing b takes most of the time
  std::int64_t panels, units, chunk, group, row_parts = 1, panel_parts = 1;

  static bool runs(const GemmProblem& p, std::int64_t stride) { return stride == 1 || p.k <= 1; }
  RegisterCut(const GemmProblem& problem, bool packed) : p(problem) {
    if (!packed && runs(p, p.b_stride[0]) && p.m <= transposed_rows_most) {
      transposed = true;
      std::swap(p.a, p.b);
      std::swap(p.m, p.n);
      std::swap(p.a_stride[0], p.b_stride[1]);
      std::swap(p.a_stride[1], p.b_stride[0]);
    }
    pack_a = !runs(p, p.a_stride[1]);
    panels = pieces_of(p.n, register_panel);
    units = pieces_of(p.k, tile_items);
    const std::int64_t work = p.m * p.n * p.k;
    by_vectors = !packed && !transposed && p.b_stride[1] == 1 && p.m <= vector_rows_most;
    few = !packed && !transposed && p.b_stride[1] == 1 && p.m <= transposed_rows_most;
    chunk = std::clamp<std::int64_t>(units, 1, few ? block_units : register_chunk_units);
    group = std::max<std::int64_t>(
        1, std::min(panels, few ? register_group : register_columns_bytes / (chunk * 2 * register_tile_bytes)));
    const std::int64_t of_rows = std::clamp<std::int64_t>(
        (transposed ? transposed_rows_bytes : packed_rows_bytes) / (2 * p.k + 2) / 32 * 32 + 32, 64,
        transposed_part_rows);
    row_parts = pieces_of(p.m, transposed || pack_a ? of_rows : chunk < units ? register_part_rows : p.m + 1);
    std::int64_t wanted = std::min(std::max(wanted_parts, 2 * p.threads), work / least_register_work);
    if (problem.m <= transposed_rows_most)  // reading b takes most of the time
      wanted = std::max(wanted, std::min(most_small_parts, 2 * problem.n * p.k / small_part_bytes));
    // minimum per part
    const std::int64_t least_panels = few                                 ? register_group / 2
                                      : problem.m <= transposed_rows_most ? 1
                                                                          : register_part_panels;
    while (parts() < wanted) {
      const bool high = p.m >= 64 * row_parts,
                 tall = high && (packed || transposed || p.m >= 2 * unpacked_part_rows * row_parts);
      const bool wide = panels >= 2 * least_panels * panel_parts,
                 enough = parts() >= std::max(few_register_parts, p.threads);
      const bool columns_first = p.n >= p.m || (!packed && row_parts == 2);  // two parts may pack the same columns
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
  /// Returns whether all threads pack the columns once before the product, instead of each part that needs them.
  bool packs_before() const { return !transposed && p.m > transposed_rows_most && row_parts > 2; }
  std::int64_t tiles() const { return pieces_of(pieces_of(p.m, row_parts), tile_rows); }  // tiles of rows of a part
  /// Returns the words per row of packed columns: a tile's, or fewer if the product has fewer columns.
  int width() const { return static_cast<int>(std::min<std::int64_t>(p.n, tile_pairs)); }
  std::int64_t tile_words() const { return std::int64_t{tile_pairs} * width(); }

  // scratch: packed columns; packed rows of a, or their last units; totals, for all rows of a part if k has several
  // chunks
  std::int64_t b_bytes(bool packed) const {
    return packed ? 0 : 4 * register_panel * tile_pairs * (transposed ? panels * units : group * chunk);
  }
  std::int64_t a_bytes() const { return tiles() * register_tile_bytes * (pack_a ? units : p.k % tile_items != 0); }
  std::int64_t total_tiles() const { return transposed || chunk == units ? 2 : tiles() + 1; }
  std::size_t scratch_bytes(bool packed) const {
    if (by_vectors) return static_cast<std::size_t>(2 * 4 * p.m * pieces_of(panels, panel_parts) * register_panel);
    return static_cast<std::size_t>(b_bytes(packed) + a_bytes() +
                                    (p.k > k_block ? 4 * group * total_tiles() * tile_rows * register_panel : 0));
  }
};

/// Packs items [k, k + items) of a panel; missing items of the last unit are 0. The second 16 columns begin `half`
/// words later. If b has whole contiguous rows, they are interleaved here and the rows of the next unit are prefetched.
HWY_NOINLINE void pack_registers(const GemmProblem& p, std::int64_t k, std::int64_t items, std::int64_t column,
                                 int columns, int width, float* to, std::int64_t half) {
  const std::int64_t pairs = pieces_of(items, 2), whole = pieces_of(items, tile_items) * tile_pairs,
                     down = p.b_stride[0];
  const bool weave = columns == register_panel && p.b_stride[1] == 1;
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
/// its columns from 16 on begin `half` words later. Contiguous rows of b are read at full length; columns contiguous
/// along k are read panel by panel.
HWY_NOINLINE void pack_columns(const GemmProblem& p, const RegisterCut& cut, std::int64_t begin, std::int64_t end,
                               std::int64_t first, std::int64_t last, float* to, std::int64_t half) {
  const std::int64_t step = p.b_stride[1] == 1 ? 1 : end - begin;
  for (std::int64_t unit = begin; unit < end; unit += step)
    for (std::int64_t q = first; q < last; ++q) {
      const std::int64_t column = q * register_panel, k = unit * tile_items;
      pack_registers(p, k, std::min(p.k - k, step * tile_items), column,
                     static_cast<int>(std::min<std::int64_t>(p.n - column, register_panel)), cut.width(),
                     to + 2 * (q - first) * half + (unit - begin) * cut.tile_words(), half);
    }
}

/// Returns the number of pieces of equal size into which the packing of all columns is split: some units of every
/// panel, or one panel.
HWY_INLINE std::int64_t packed_pieces(const RegisterCut& cut) {
  return cut.p.b_stride[1] == 1 ? pieces_of(cut.units, packed_piece_units) : cut.panels;
}
HWY_INLINE void pack_piece(const GemmProblem& p, const RegisterCut& cut, std::int64_t piece, float* packed) {
  const std::int64_t half = cut.units * cut.tile_words(), unit = piece * packed_piece_units;
  if (p.b_stride[1] != 1) return pack_columns(p, cut, 0, cut.units, piece, piece + 1, packed + 2 * piece * half, half);
  pack_columns(p, cut, unit, std::min(cut.units, unit + packed_piece_units), 0, cut.panels,
               packed + unit * cut.tile_words(), half);
}

/// Returns where tile t of `rows` rows begins: the last tile may overlap the one before it, and then computes the same
/// rows again.
HWY_INLINE std::int64_t first_row(std::int64_t t, std::int64_t rows) {
  return std::max<std::int64_t>(0, std::min(tile_rows * t, rows - tile_rows));
}

/// Packs `rows` rows of a, from item k on, as tiles [tiles][units][16 rows of 64 bytes]; missing items of the last unit
/// are 0.
HWY_NOINLINE void pack_rows(const GemmProblem& p, std::int64_t row, std::int64_t rows, std::int64_t k, char* to) {
  const std::int64_t along = p.a_stride[0], down = p.a_stride[1], items = p.k - k, units = pieces_of(items, tile_items);
  for (std::int64_t t = 0; t < pieces_of(rows, tile_rows); ++t, to += units * register_tile_bytes) {
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
        transpose_cached_words(reinterpret_cast<const char*>(square), sizeof square[0], transposed);
        _Pragma("GCC unroll 16") for (int r = 0; r < tile_rows; ++r)
            _mm512_store_ps(to + whole * register_tile_bytes + r * register_row_bytes, transposed[r]);
      }
    }
    for (int r = 0; r < height; ++r) {
      const std::uint16_t* item = from + r * along + whole * tile_items * down;
      char* line = to + whole * register_tile_bytes + r * register_row_bytes;
      for (std::int64_t left = items - whole * tile_items; left > 0;
           left -= tile_items, line += register_tile_bytes, item += tile_items * down) {
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

/// Computes to = before + sums.
HWY_INLINE void add_registers(const float* before, const float* sums, int count, float* to) {
  const Pairs::D d;
  for (int i = 0; i < count; i += 16) {
    const auto sum = hn::Load(d, sums + i);
    hn::Store(hn::Add(before ? hn::Add(hn::Load(d, before + i), sum) : sum, hn::Zero(d)), d, to + i);
  }
}

/// Adds the sums of a tile's rows to those of the earlier blocks (`before`, or null) and writes the result to y.
/// `lanes`: length of a row of sums, 16 or 32.
HWY_NOINLINE void finish_registers(const RegisterCut& cut, float* sums, const float* before, std::int64_t row, int rows,
                                   std::int64_t column, int columns, int lanes) {
  const GemmProblem& p = cut.p;
  const Pairs::D d;
  const float* const given = static_cast<const float*>(p.bias);
  alignas(64) float transposed[register_panel * tile_rows];
  if (cut.transposed) {
    add_registers(before, sums, tile_rows * lanes, sums);
    before = nullptr;
    transpose(sums, std::int64_t{lanes}, std::int64_t{rows}, std::int64_t{columns}, transposed,
              std::int64_t{tile_rows});
    sums = transposed;
    lanes = tile_rows;
    std::swap(row, column);
    std::swap(rows, columns);
  }
  alignas(64) float bias[register_panel] = {};
  if (given) std::memcpy(bias, given + column, sizeof(float) * static_cast<std::size_t>(columns));
  const std::int64_t at = row * p.y_stride[0] + column;
  void* const y = p.narrow ? static_cast<void*>(static_cast<std::uint16_t*>(p.y) + at) : static_cast<float*>(p.y) + at;
  const bool plain = p.narrow && p.activation == Activation::none && columns == lanes;
  const hn::Rebind<std::uint16_t, Pairs::D> halves;
  for (int c = 0; c < lanes; c += 16) {
    const auto b = hn::Load(d, bias + c);
    for (int r = 0; r < rows; ++r) {
      auto v = hn::Add(
          hn::Add(before ? hn::Load(d, before + r * lanes + c) : hn::Zero(d), hn::Load(d, sums + r * lanes + c)),
          hn::Zero(d));
      v = canonical(d, given ? hn::Add(v, b) : v);
      if (plain) {
        hn::StoreU(rounded_to_bf16(d, v), halves, static_cast<std::uint16_t*>(y) + r * p.y_stride[0] + c);
      } else {
        hn::Store(v, d, sums + r * lanes + c);
      }
    }
  }
  if (!plain) finish_rows(p.activation, p.narrow, sums, rows, lanes, columns, y, p.y_stride[0]);
}

/// Computes one part of a product by AMX tiles.
class RegisterPart {
 public:
  RegisterPart(const RegisterCut& how, std::int64_t part, void* scratch, const void* packed)
      : cut(how), row(even_cut(p.m, cut.row_parts, part % cut.row_parts)),
        rows(even_cut(p.m, cut.row_parts, part % cut.row_parts + 1) - row),
        first_panel(even_cut(cut.panels, cut.panel_parts, part / cut.row_parts)),
        last_panel(even_cut(cut.panels, cut.panel_parts, part / cut.row_parts + 1)),
        b_here(static_cast<float*>(scratch)), b_packed(static_cast<const float*>(packed)),
        a_here(static_cast<char*>(scratch) + cut.b_bytes(packed != nullptr)),
        totals(reinterpret_cast<float*>(a_here + cut.a_bytes())) {
    if (cut.a_bytes() != 0) pack_rows(p, row, rows, in_place * tile_items, a_here);
    if (cut.transposed) {
      half = cut.units * cut.tile_words();
      pack_columns(p, cut, 0, cut.units, 0, cut.panels, b_here, half);
      b_packed = b_here;
    }
    block.a_stride = cut.pack_a ? register_row_bytes : 2 * p.a_stride[0];
    block.a_step = cut.pack_a ? register_tile_bytes : register_row_bytes;
    block.row_bytes = 4 * cut.width();
    rest.y_stride = p.y_stride[0];
  }

  void run() {
    AmxTiles shapes;
    const int few = static_cast<int>(std::min<std::int64_t>(p.n, tile_pairs));
    for (int t = 0; t < 8; ++t) shapes.shaped(t, t < 6 ? height : tile_rows, t == 4 || t == 5 ? tile_pairs : few);
    shapes.begin();
    cut.transposed ? rows_first() : panels_first();
    for (int u = 0; u < block_units; ++u) rest.piece(u);
  }

 private:
  /// Order for a small packed operand, which stays in the caches: passes over the rows once, prefetching the next rows
  /// in the order of their addresses.
  void rows_first() {
    const bool far = 2 * p.m * p.k > register_cached_bytes && p.a_stride[0] == p.k;
    for (std::int64_t t = 0; t < tiles; t += 2)
      for (std::int64_t q = first_panel; q < last_panel; ++q)
        for (std::int64_t unit = 0; unit == 0 || unit < cut.units; unit += block_units) {
          if (far && q == first_panel && t + 4 <= tiles) {
            const char* const ahead = row_at(t + 2) + unit * tile_rows * 2 * register_row_bytes;
            for (int line = 0; line < 256; ++line) _mm_prefetch(ahead + 64 * line, _MM_HINT_T1);
          }
          block.b = packed_at(q, unit);
          add(q, unit, t, totals);
        }
  }
  /// Order for a large packed operand: panels of columns stay in L2 while all rows pass; a block of k of 32 rows stays
  /// in L1 while the panels pass.
  void panels_first() {
    for (std::int64_t group = first_panel; group < last_panel; group += cut.group) {
      const std::int64_t group_end = std::min(last_panel, group + cut.group);
      for (std::int64_t begin = 0; begin == 0 || begin < cut.units; begin += cut.chunk) {
        const std::int64_t end = std::min(cut.units, begin + cut.chunk);
        half = (b_packed ? cut.units : cut.chunk) * cut.tile_words();
        if (!b_packed) pack_columns(p, cut, begin, end, group, group_end, b_here, half);
        for (std::int64_t t = 0; t < tiles; t += 2)
          for (std::int64_t unit = begin; unit == begin || unit < end; unit += block_units)
            for (std::int64_t q = group; q < group_end; ++q) {
              block.b =
                  b_packed ? packed_at(q, unit) : b_here + 2 * (q - group) * half + (unit - begin) * cut.tile_words();
              add(q, unit, t,
                  totals +
                      ((cut.total_tiles() > 2 ? t : 0) * cut.group + 2 * (q - group)) * tile_rows * register_panel);
            }
      }
    }
  }

  int columns_of(std::int64_t q) const {
    return static_cast<int>(std::min<std::int64_t>(p.n - q * register_panel, register_panel));
  }
  const char* row_at(std::int64_t t) const {
    return static_cast<const char*>(p.a) + 2 * (row + first_row(t, rows)) * p.a_stride[0];
  }
  const float* packed_at(std::int64_t q, std::int64_t unit) const {
    return b_packed + (2 * cut.units * q + unit) * cut.tile_words();
  }

  /// Adds one block of k for two tiles of rows, t and the next, and one panel.
  HWY_INLINE void add(std::int64_t q, std::int64_t unit, std::int64_t t, float* total) {
    const std::int64_t column = q * register_panel, end = std::min<std::int64_t>(cut.units, unit + block_units);
    const int columns = columns_of(q), vectors = static_cast<int>(pieces_of(columns, tile_pairs)),
              lanes = vectors * tile_pairs, tall = t + 1 < tiles ? 2 : 1;
    const bool last = end == cut.units, to_y = last && plain && columns == lanes;
    block.half = half;
    block.with_end = !cut.pack_a && end > in_place;
    block.units = static_cast<int>(end - unit) - block.with_end;
    for (int s = 0; s < tall; ++s) {
      block.a[s] = cut.pack_a ? a_here + ((t + s) * cut.units + unit) * register_tile_bytes
                              : row_at(t + s) + unit * register_row_bytes;
      block.end[s] = a_here + (t + s) * register_tile_bytes;
    }
    block.sums = unit == 0 && !last ? total : sums;  // 0 + a sum is that sum; the end turns -0 into +0
    const auto tall_one = vectors == 2 ? multiply_registers<2, 2> : multiply_registers<2, 1>;
    const auto low_one = vectors == 2 ? multiply_registers<1, 2> : multiply_registers<1, 1>;
    (tall == 2 ? tall_one : low_one)(block, rest);
    rest.to = to_y ? RegisterRest::To::y : unit == 0 || last ? RegisterRest::To::nothing : RegisterRest::To::total;
    rest.sums = block.sums;
    rest.before = unit == 0 ? nullptr : total;
    rest.total = total;
    rest.lanes = lanes;
    rest.tiles = tall;
    rest.bias = p.bias ? static_cast<const float*>(p.bias) + column : nullptr;
    for (int s = 0; s < tall; ++s) {
      const std::int64_t at = row + first_row(t + s, rows), tile = s * tile_rows * lanes;
      rest.y[s] = static_cast<std::uint16_t*>(p.y) + at * p.y_stride[0] + column;
      if (last && !to_y)
        finish_registers(cut, sums + tile, rest.before ? rest.before + tile : nullptr, at, height, column, columns,
                         lanes);
    }
  }

  const RegisterCut& cut;
  const GemmProblem& p = cut.p;
  const std::int64_t row, rows, first_panel, last_panel;
  const std::int64_t tiles = pieces_of(rows, tile_rows);
  const int height = static_cast<int>(std::min<std::int64_t>(rows, tile_rows));
  // units that are read in place; the others are packed
  const std::int64_t in_place = cut.pack_a ? 0 : p.k / tile_items;
  const bool plain = p.narrow && p.activation == Activation::none && !cut.transposed && height == tile_rows;
  float* const b_here;
  const float* b_packed;  // all packed columns, or null
  char* const a_here;
  float* const totals;
  std::int64_t half = 0;  // words from a panel's first 16 columns to the other 16
  RegisterBlock block;
  RegisterRest rest;
  alignas(64) float sums[2 * tile_rows * register_panel] = {};
};

HWY_NOINLINE void register_part(const GemmProblem& problem, std::int64_t part, void* scratch, const void* packed) {
  const RegisterCut cut(problem, packed != nullptr);
  if (!cut.by_vectors) return RegisterPart(cut, part, scratch, packed).run();
  // all its rows are in one part
  const std::int64_t first = even_cut(cut.panels, cut.panel_parts, part) * register_panel;
  const std::int64_t end = std::min(problem.n, even_cut(cut.panels, cut.panel_parts, part + 1) * register_panel);
  register_rows(problem, first, static_cast<int>(end - first), static_cast<float*>(scratch));
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
