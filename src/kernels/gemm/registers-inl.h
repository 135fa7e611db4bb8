// src/kernels/gemm/registers-inl.h: products of bf16 by tile registers: 32 x 32 elements at a time, 32 items of k a step.
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

#include "kernels/amx.h"
#include "kernels/gemm/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET == HWY_AVX3 && defined(__x86_64__)
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr int register_panel = 2 * tile_pairs;               // columns that two tiles have
inline constexpr int block_units = k_block / tile_items;            // steps of a chain
inline constexpr std::int64_t register_row_bytes = 2 * tile_items;  // of a tile of rows

/// How a product is cut for the tile registers. One operand is read as rows of k, where it lies if its rows are runs; the other is packed as
/// [pairs of k][panel of 32 columns]. Where it is b whose items are runs along k and a has few rows (or none that are runs), y is
/// computed turned: b gives the rows, a is packed.
struct RegisterCut {
  GemmProblem p;  // a and b as they are computed
  bool turned = false, pack_a;
  std::int64_t panels, units, row_parts = 1, panel_parts = 1;

  static bool runs(const GemmProblem& p, std::int64_t stride) { return stride == 1 || p.k <= 1; }
  RegisterCut(const GemmProblem& problem, bool packed) : p(problem) {
    if (!packed && runs(p, p.b_stride[0]) && (p.m <= turned_rows_most || !runs(p, p.a_stride[1]))) {
      turned = true;
      std::swap(p.a, p.b);
      std::swap(p.m, p.n);
      std::swap(p.a_stride[0], p.b_stride[1]);
      std::swap(p.a_stride[1], p.b_stride[0]);
    }
    pack_a = !runs(p, p.a_stride[1]);
    panels = pieces_of(p.n, register_panel);
    units = pieces_of(p.k, tile_items);
    const std::int64_t rows = std::clamp<std::int64_t>(register_rows_bytes / (2 * p.k + 1) / 32 * 32, 64, register_rows_most), work = p.m * p.n * p.k;
    row_parts = pieces_of(p.m, rows);
    const std::int64_t wanted = std::min(wanted_parts, work / least_register_work);
    while (row_parts * panel_parts < wanted) {
      if ((pack_a || panels < 2 * panel_parts) && p.m >= 64 * row_parts) {
        row_parts *= 2;
      } else if (panels >= 2 * panel_parts) {
        panel_parts *= 2;
      } else {
        break;
      }
    }
  }
  std::int64_t parts() const { return row_parts * panel_parts; }
  /// Whether columns are better packed once before, by all threads, than by every part that has some of its rows.
  bool packs_before() const { return !turned && row_parts > 1; }
  std::int64_t tiles() const { return pieces_of(pieces_of(p.m, row_parts), tile_rows); }
  /// Words of a row of packed columns: whole tiles, but for a product of fewer columns than one has.
  int width(int columns) const { return p.n < tile_pairs ? static_cast<int>(p.n) : static_cast<int>(pieces_of(columns, tile_pairs)) * tile_pairs; }

  // scratch: a block of a panel; rows of a, or the ends of them; totals
  std::int64_t b_bytes(bool packed) const { return packed ? 0 : 4 * (k_block / 2) * register_panel; }
  std::int64_t a_stride() const { return pack_a ? (units | 1) * register_row_bytes : p.k % tile_items != 0 ? register_row_bytes : 0; }
  std::int64_t a_bytes() const { return tiles() * tile_rows * a_stride(); }
  std::size_t scratch_bytes(bool packed) const {
    return static_cast<std::size_t>(b_bytes(packed) + a_bytes() + (p.k > k_block ? 4 * tiles() * tile_rows * register_panel : 0));
  }
};

/// A block of k of up to 2 x 2 tiles.
struct RegisterBlock {
  const char* a[2];  // first items of two tiles of rows
  const char* end[2];  // their last ones, padded, if `units` are not all
  std::int64_t a_stride, end_stride;
  const float* b;
  int width, units;
  bool with_end;
  float* sums;  // [rows][16 or 32]
};

template <int ROWS, int COLUMNS>
HWY_NOINLINE void multiply_registers(const RegisterBlock& block) {
  const auto step = [](const char* above, const char* below, std::int64_t stride, const float* b, std::int64_t row) __attribute__((always_inline)) {
    tile_load<6>(b, row);
    tile_load<4>(above, stride);
    tile_dot<0, 4, 6>();
    if (COLUMNS == 2) {
      tile_load<7>(b + tile_pairs, row);
      tile_dot<1, 4, 7>();
    }
    if (ROWS == 2) {
      tile_load<5>(below, stride);
      tile_dot<2, 5, 6>();
      if (COLUMNS == 2) tile_dot<3, 5, 7>();
    }
  };
  tile_zero<0>();
  if (COLUMNS == 2) tile_zero<1>();
  if (ROWS == 2) tile_zero<2>();
  if (ROWS == 2 && COLUMNS == 2) tile_zero<3>();
  const std::int64_t row = 4 * block.width;
  const char *above = block.a[0], *below = block.a[1];
  const float* b = block.b;
  for (int u = 0; u < block.units; ++u, above += register_row_bytes, below += register_row_bytes, b += tile_pairs * block.width)
    step(above, below, block.a_stride, b, row);
  if (block.with_end) step(block.end[0], block.end[1], block.end_stride, b, row);
  constexpr std::int64_t sums_row = 4 * COLUMNS * tile_pairs;
  tile_store<0>(block.sums, sums_row);
  if (COLUMNS == 2) tile_store<1>(block.sums + tile_pairs, sums_row);
  if (ROWS == 2) tile_store<2>(block.sums + tile_rows * COLUMNS * tile_pairs, sums_row);
  if (ROWS == 2 && COLUMNS == 2) tile_store<3>(block.sums + tile_rows * COLUMNS * tile_pairs + tile_pairs, sums_row);
}

/// Items [k, k + items) of a panel; missing ones of the last unit are 0.
HWY_INLINE void pack_registers(const GemmProblem& p, std::int64_t k, std::int64_t items, std::int64_t column, int columns, int width, float* to) {
  const std::int64_t pairs = pieces_of(items, 2), whole = pieces_of(items, tile_items) * tile_pairs;
  pack_panel<Pairs>(p, k, items, column, columns, width, to);
  std::memset(to + pairs * width, 0, 4 * static_cast<std::size_t>((whole - pairs) * width));
}

/// `rows` rows of a, `stride` bytes apart, from item k on; what is missing of the last unit is 0.
HWY_NOINLINE void pack_rows(const GemmProblem& p, std::int64_t row, std::int64_t rows, std::int64_t k, char* to, std::int64_t stride) {
  const std::int64_t along = p.a_stride[0], down = p.a_stride[1];
  const auto* from = static_cast<const std::uint16_t*>(p.a) + row * along + k * down;
  const std::int64_t items = p.k - k;
  for (std::int64_t u = 0; u < pieces_of(items, tile_items); ++u, to += register_row_bytes) {
    const std::int64_t here = std::min<std::int64_t>(tile_items, items - u * tile_items);
    const std::uint16_t* const unit = from + u * tile_items * down;
    std::int64_t i = 0;
    if (along == 1 && rows >= tile_rows && here == tile_items) {
      for (; i < rows; i += tile_rows) {
        const std::int64_t at = std::min<std::int64_t>(i, rows - tile_rows);
        alignas(64) float square[tile_pairs][tile_rows];
        for (int w = 0; w < tile_pairs; ++w) {
          const std::uint16_t* pair = unit + 2 * w * down + at;
          hwy::Prefetch(pair + tile_items * down);
          hwy::Prefetch(pair + (tile_items + 1) * down);
          hn::Store(Pairs::words(pair, pair + down), Pairs::D(), square[w]);
        }
        __m512 turned[16];
        turn_cached_words(reinterpret_cast<const char*>(square), sizeof square[0], turned);
        _Pragma("GCC unroll 16") for (int r = 0; r < tile_rows; ++r) _mm512_storeu_ps(to + (at + r) * stride, turned[r]);
      }
    }
    for (; i < rows; ++i) {
      std::uint16_t line[tile_items] = {};
      for (std::int64_t c = 0; c < here; ++c) line[c] = unit[i * along + c * down];
      std::memcpy(to + i * stride, line, sizeof line);
    }
  }
}

/// The sums of a tile's rows into y, which has the sums of all its blocks. `lanes`: of a row of sums, 16 or 32.
HWY_NOINLINE void finish_registers(const RegisterCut& cut, float* sums, std::int64_t row, int rows, std::int64_t column, int columns, int lanes) {
  const GemmProblem& p = cut.p;
  const Pairs::D d;
  const float* const given = static_cast<const float*>(p.bias);
  alignas(64) float turned[register_panel * tile_rows];
  if (cut.turned) {
    turn(sums, std::int64_t{lanes}, std::int64_t{rows}, std::int64_t{columns}, turned, std::int64_t{tile_rows});
    sums = turned;
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
      auto v = hn::Load(d, sums + r * lanes + c);
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

HWY_NOINLINE void register_part(const GemmProblem& problem, std::int64_t part, void* scratch, const void* packed) {
  const RegisterCut cut(problem, packed != nullptr);
  const GemmProblem& p = cut.p;
  const Pairs::D d;
  const std::int64_t row_part = part / cut.panel_parts, panel_part = part % cut.panel_parts;
  const std::int64_t row = even_cut(p.m, cut.row_parts, row_part), rows = even_cut(p.m, cut.row_parts, row_part + 1) - row;
  const std::int64_t tiles = pieces_of(rows, tile_rows), height = std::min<std::int64_t>(rows, tile_rows);
  Tiles shapes;
  for (int t = 0; t < 8; ++t)
    shapes.shaped(t, t < 6 ? static_cast<int>(height) : tile_rows, t == 4 || t == 5 ? tile_pairs : static_cast<int>(std::min<std::int64_t>(p.n, tile_pairs)));
  shapes.begin();

  char* const a_here = static_cast<char*>(scratch) + cut.b_bytes(packed != nullptr);
  float* const totals = reinterpret_cast<float*>(a_here + cut.a_bytes());
  const std::int64_t whole = cut.pack_a ? cut.units : p.k / tile_items;  // units that are read where all others are
  if (cut.a_stride() != 0) pack_rows(p, row, rows, cut.pack_a ? 0 : whole * tile_items, a_here, cut.a_stride());
  const char* const a = cut.pack_a ? a_here : reinterpret_cast<const char*>(static_cast<const std::uint16_t*>(p.a) + row * p.a_stride[0]);
  RegisterBlock block;
  block.a_stride = cut.pack_a ? cut.a_stride() : 2 * p.a_stride[0];
  block.end_stride = register_row_bytes;
  alignas(64) float sums[2 * tile_rows * register_panel] = {};
  block.sums = sums;
  for (std::int64_t q = even_cut(cut.panels, cut.panel_parts, panel_part); q < even_cut(cut.panels, cut.panel_parts, panel_part + 1); ++q) {
    const std::int64_t column = q * register_panel;
    const int columns = static_cast<int>(std::min<std::int64_t>(p.n - column, register_panel));
    const int vectors = static_cast<int>(pieces_of(columns, tile_pairs)), lanes = vectors * tile_pairs;
    block.width = cut.width(columns);
    for (std::int64_t unit = 0; unit == 0 || unit < cut.units; unit += block_units) {
      const std::int64_t k = unit * tile_items, end = std::min<std::int64_t>(cut.units, unit + block_units);
      block.units = static_cast<int>(std::min(end, whole) - unit);
      block.with_end = end > whole;
      block.b = static_cast<const float*>(packed ? packed : scratch);
      if (packed) {
        block.b += cut.units * tile_pairs * column + unit * tile_pairs * block.width;
      } else {
        pack_registers(p, k, std::min<std::int64_t>(p.k - k, k_block), column, columns, block.width, static_cast<float*>(scratch));
      }
      for (std::int64_t t = 0; t < tiles; t += 2) {
        const int tall = t + 1 < tiles ? 2 : 1;
        std::int64_t first[2];
        for (int s = 0; s < tall; ++s) {  // the last tile may have rows of the one before: they are the same again
          first[s] = std::min(tile_rows * (t + s), rows - height);
          block.a[s] = a + first[s] * block.a_stride + unit * register_row_bytes;
          block.end[s] = a_here + first[s] * block.end_stride;
        }
        (tall == 2 ? vectors == 2 ? multiply_registers<2, 2> : multiply_registers<2, 1> : vectors == 2 ? multiply_registers<1, 2> : multiply_registers<1, 1>)(block);
        float* const total = totals + t * tile_rows * lanes;
        const int many = tall * tile_rows * lanes;
        const bool last = end == cut.units;
        for (int i = 0; i < many; i += 16) {
          const auto sum = hn::Add(unit == 0 ? hn::Zero(d) : hn::Load(d, total + i), hn::Load(d, sums + i));
          hn::Store(sum, d, (last ? sums : total) + i);
        }
        if (last)
          for (int s = 0; s < tall; ++s)
            finish_registers(cut, sums + s * tile_rows * lanes, row + first[s], static_cast<int>(height), column, columns, lanes);
      }
    }
  }
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
