// src/kernels/gemm/amx_part-inl.h: computes a part of a bf16 product by AMX tiles: 32 x 32 elements at a time,
// 32 items of k per step.
#if defined(ATTN_GEMM_AMX_PART_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_GEMM_AMX_PART_INL_H
#undef ATTN_GEMM_AMX_PART_INL_H
#else
#define ATTN_GEMM_AMX_PART_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/gemm/amx_few_rows-inl.h"
#include "kernels/gemm/amx_pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET == HWY_AVX3 && defined(__x86_64__)
namespace hn = hwy::HWY_NAMESPACE;

/// Computes to = before + sums (a null `before` counts as 0), where a zero is +0.
HWY_INLINE void add_sums(const float* before, const float* sums, int count, float* to) {
  const Pairs::D d;
  for (int i = 0; i < count; i += 16) {
    const auto sum = hn::Load(d, sums + i);
    hn::Store(hn::Add(before ? hn::Add(hn::Load(d, before + i), sum) : sum, hn::Zero(d)), d, to + i);
  }
}

/// Adds the sums of a tile's rows to the totals of the earlier blocks (`before`, or null) and the bias, and writes the
/// result to y. `lanes`: length of a row of sums, 16 or 32.
HWY_NOINLINE void finish_amx_tile(const AmxSplit& cut, float* sums, const float* before, std::int64_t row, int rows,
                                  std::int64_t column, int columns, int lanes) {
  const GemmProblem& p = cut.p;
  const Pairs::D d;
  const float* const given = static_cast<const float*>(p.bias);
  alignas(64) float transposed[amx_panel * tile_rows];
  if (cut.transposed) {
    add_sums(before, sums, tile_rows * lanes, sums);
    before = nullptr;
    transpose(sums, std::int64_t{lanes}, std::int64_t{rows}, std::int64_t{columns}, transposed,
              std::int64_t{tile_rows});
    sums = transposed;
    lanes = tile_rows;
    std::swap(row, column);
    std::swap(rows, columns);
  }
  alignas(64) float bias[amx_panel] = {};
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
class AmxPart {
 public:
  AmxPart(const AmxSplit& how, std::int64_t part, void* scratch, const void* packed)
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
    block.a_stride = cut.pack_a ? amx_row_bytes : 2 * p.a_stride[0];
    block.a_step = cut.pack_a ? amx_tile_bytes : amx_row_bytes;
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
  /// The order for a small packed operand, which stays in the caches: passes over the rows once, and prefetches the
  /// next rows in the order of their addresses.
  void rows_first() {
    const bool far = 2 * p.m * p.k > amx_cached_bytes && p.a_stride[0] == p.k;
    for (std::int64_t t = 0; t < tiles; t += 2)
      for (std::int64_t q = first_panel; q < last_panel; ++q)
        for (std::int64_t unit = 0; unit == 0 || unit < cut.units; unit += block_units) {
          if (far && q == first_panel && t + 4 <= tiles) {
            const char* const ahead = row_at(t + 2) + unit * tile_rows * 2 * amx_row_bytes;
            for (int line = 0; line < 256; ++line) _mm_prefetch(ahead + 64 * line, _MM_HINT_T1);
          }
          block.b = packed_at(q, unit);
          add(q, unit, t, totals);
        }
  }
  /// The order for a large packed operand: panels of columns stay in L2 while all rows pass; a block of k of 32 rows
  /// stays in L1 while it is multiplied by the panels.
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
                  totals + ((cut.total_tiles() > 2 ? t : 0) * cut.group + 2 * (q - group)) * tile_rows * amx_panel);
            }
      }
    }
  }

  int columns_of(std::int64_t q) const {
    return static_cast<int>(std::min<std::int64_t>(p.n - q * amx_panel, amx_panel));
  }
  const char* row_at(std::int64_t t) const {
    return static_cast<const char*>(p.a) + 2 * (row + first_row(t, rows)) * p.a_stride[0];
  }
  const float* packed_at(std::int64_t q, std::int64_t unit) const {
    return b_packed + (2 * cut.units * q + unit) * cut.tile_words();
  }

  /// Adds one block of k for one panel and two tiles of rows, t and the next if it exists.
  HWY_INLINE void add(std::int64_t q, std::int64_t unit, std::int64_t t, float* total) {
    const std::int64_t column = q * amx_panel, end = std::min<std::int64_t>(cut.units, unit + block_units);
    const int columns = columns_of(q), vectors = static_cast<int>(pieces_of(columns, tile_pairs)),
              lanes = vectors * tile_pairs, tall = t + 1 < tiles ? 2 : 1;
    const bool last = end == cut.units, to_y = last && plain && columns == lanes;
    block.half = half;
    block.with_end = !cut.pack_a && end > in_place;
    block.units = static_cast<int>(end - unit) - block.with_end;
    for (int s = 0; s < tall; ++s) {
      block.a[s] =
          cut.pack_a ? a_here + ((t + s) * cut.units + unit) * amx_tile_bytes : row_at(t + s) + unit * amx_row_bytes;
      block.end[s] = a_here + (t + s) * amx_tile_bytes;
    }
    // the first block's sums become the totals as they are; at the end -0 becomes +0
    block.sums = unit == 0 && !last ? total : sums;
    const auto tall_one = vectors == 2 ? multiply_amx_block<2, 2> : multiply_amx_block<2, 1>;
    const auto low_one = vectors == 2 ? multiply_amx_block<1, 2> : multiply_amx_block<1, 1>;
    (tall == 2 ? tall_one : low_one)(block, rest);
    rest.to = to_y ? FinishedBlock::To::y : unit == 0 || last ? FinishedBlock::To::nothing : FinishedBlock::To::total;
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
        finish_amx_tile(cut, sums + tile, rest.before ? rest.before + tile : nullptr, at, height, column, columns,
                        lanes);
    }
  }

  const AmxSplit& cut;
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
  AmxBlock block;
  FinishedBlock rest;
  alignas(64) float sums[2 * tile_rows * amx_panel] = {};
};

HWY_NOINLINE void amx_part(const GemmProblem& problem, std::int64_t part, void* scratch, const void* packed) {
  const AmxSplit cut(problem, packed != nullptr);
  if (!cut.by_vectors) return AmxPart(cut, part, scratch, packed).run();
  // products by vectors are split by columns only
  const std::int64_t first = even_cut(cut.panels, cut.panel_parts, part) * amx_panel;
  const std::int64_t end = std::min(problem.n, even_cut(cut.panels, cut.panel_parts, part + 1) * amx_panel);
  amx_few_rows(problem, first, static_cast<int>(end - first), static_cast<float*>(scratch));
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
