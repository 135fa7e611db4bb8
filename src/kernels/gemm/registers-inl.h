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
inline constexpr std::int64_t register_tile_bytes = tile_rows * register_row_bytes;

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
    const std::int64_t rows = std::clamp<std::int64_t>(register_rows_bytes / (2 * p.k + 2) / 32 * 32 + 32, 64, register_rows_most), work = p.m * p.n * p.k;
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
  bool packs_before() const { return !turned && row_parts > 2; }
  std::int64_t tiles() const { return pieces_of(pieces_of(p.m, row_parts), tile_rows); }
  /// Words of a row of packed columns: whole tiles, but for a product of fewer columns than one has.
  int width(int columns) const { return p.n < tile_pairs ? static_cast<int>(p.n) : static_cast<int>(pieces_of(columns, tile_pairs)) * tile_pairs; }

  // scratch: a block of a panel; rows of a, or the ends of them; totals
  std::int64_t b_bytes(bool packed) const { return packed ? 0 : 4 * (k_block / 2) * register_panel; }
  std::int64_t a_bytes() const { return tiles() * register_tile_bytes * (pack_a ? units : p.k % tile_items != 0); }
  std::size_t scratch_bytes(bool packed) const {
    return static_cast<std::size_t>(b_bytes(packed) + a_bytes() + (p.k > k_block ? 4 * tiles() * tile_rows * register_panel : 0));
  }
};

/// What will be needed: 256 lines, eight of each step, a share of them at a time.
struct LinesAhead {
  const char* at = nullptr;
  std::int64_t step, line;  // bytes

  HWY_INLINE void fetch(std::int64_t piece, std::int64_t pieces) const {
    if (at == nullptr) return;
    for (std::int64_t i = 256 * piece / pieces; i < 256 * (piece + 1) / pieces; ++i) _mm_prefetch(at + (i >> 3) * step + (i & 7) * line, _MM_HINT_T1);
  }
};

/// Sums of a block on their way: to the totals of the blocks before, or into a y of bf16. Done in eight pieces between the steps of the next
/// block, whose products keep the tile unit busy meanwhile.
struct RegisterRest {
  enum class To { nothing, total, y } to = To::nothing;
  const float *sums, *before;  // [rows][lanes]; null: there are none
  int lanes, tiles;
  float* total;
  std::uint16_t* y[2];  // of each tile of rows
  std::int64_t y_stride;
  const float* bias;  // or null

  HWY_INLINE void piece(int u) const {
    if (to == To::nothing || u >= 4 * tiles) return;
    lanes == 32 ? piece_of<2>(u) : piece_of<1>(u);
  }
  template <int VECTORS>
  HWY_INLINE void piece_of(int u) const {
    const Pairs::D d;
    const float* HWY_RESTRICT from = sums + 4 * u * 16 * VECTORS;
    const float* HWY_RESTRICT add = before ? before + 4 * u * 16 * VECTORS : nullptr;
    if (to == To::total) {
      float* HWY_RESTRICT out = total + 4 * u * 16 * VECTORS;
      _Pragma("GCC unroll 8") for (int i = 0; i < 4 * 16 * VECTORS; i += 16) hn::Store(hn::Add(hn::Load(d, add + i), hn::Load(d, from + i)), d, out + i);
      return;
    }
    std::uint16_t* row = y[u / 4] + u % 4 * 4 * y_stride;
    const auto low = bias ? hn::Add(hn::LoadU(d, bias), hn::Zero(d)) : hn::Zero(d), high = bias && VECTORS == 2 ? hn::Add(hn::LoadU(d, bias + 16), hn::Zero(d)) : hn::Zero(d);
    _Pragma("GCC unroll 4") for (int r = 0; r < 4; ++r, from += 16 * VECTORS, row += y_stride) {
      auto left = hn::Load(d, from), right = VECTORS == 2 ? hn::Load(d, from + 16) : left;
      if (add) {
        left = hn::Add(hn::Load(d, add), left);
        if (VECTORS == 2) right = hn::Add(hn::Load(d, add + 16), right);
        add += 16 * VECTORS;
      }
      left = hn::Add(left, low);
      if (VECTORS == 2) right = hn::Add(right, high);
      __m512i halves;  // the processor's own rounding, but for NaN and denormals
      asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(halves) : "v"(left.raw), "v"(right.raw));
      if ((_mm512_fpclass_ps_mask(left.raw, 0xa1) | _mm512_fpclass_ps_mask(right.raw, 0xa1)) != 0) [[unlikely]]
        halves = _mm512_inserti64x4(_mm512_castsi256_si512(rounded_to_bf16(d, canonical(d, left)).raw), rounded_to_bf16(d, canonical(d, right)).raw, 1);
      if (VECTORS == 1) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(row), _mm512_castsi512_si256(halves));
      } else {
        _mm512_storeu_si512(row, halves);
      }
    }
  }
};

/// A block of k of up to 2 x 2 tiles.
struct RegisterBlock {
  const char* a[2];    // first items of two tiles of rows
  const char* end[2];  // the unit after the `units`, padded
  std::int64_t a_stride, a_step;
  const float* b;
  int width, units;
  bool with_end;
  float* sums;  // [rows][16 or 32]
};

template <int ROWS, int COLUMNS>
HWY_NOINLINE void multiply_registers(const RegisterBlock& block, const RegisterRest& rest) {
  const std::int64_t row = 4 * block.width;
  const char *above = block.a[0], *below = block.a[1];
  const float* b = block.b;
  std::int64_t stride = block.a_stride;
  tile_zero<0>();
  if (COLUMNS == 2) tile_zero<1>();
  if (ROWS == 2) tile_zero<2>();
  if (ROWS == 2 && COLUMNS == 2) tile_zero<3>();
  for (int u = 0; u < block.units + block.with_end; ++u, above += block.a_step, below += block.a_step, b += tile_pairs * block.width) {
    if (u == block.units) {
      above = block.end[0];
      below = block.end[1];
      stride = register_row_bytes;
    }
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
    rest.piece(u);
  }
  for (int u = block.units + block.with_end; u < block_units; ++u) rest.piece(u);
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

/// Where tile t of `rows` rows begins: the last may have rows of the one before, which are the same again.
HWY_INLINE std::int64_t first_row(std::int64_t t, std::int64_t rows) { return std::max<std::int64_t>(0, std::min(tile_rows * t, rows - tile_rows)); }

/// `rows` rows of a from item k on as tiles, [tiles][units][16 rows of 64 bytes]; items that are missing of the last unit are 0.
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
        __m512 turned[16];
        turn_cached_words(reinterpret_cast<const char*>(square), sizeof square[0], turned);
        _Pragma("GCC unroll 16") for (int r = 0; r < tile_rows; ++r) _mm512_store_ps(to + whole * register_tile_bytes + r * register_row_bytes, turned[r]);
      }
    }
    for (int r = 0; r < height; ++r) {
      const std::uint16_t* item = from + r * along + whole * tile_items * down;
      char* line = to + whole * register_tile_bytes + r * register_row_bytes;
      for (std::int64_t left = items - whole * tile_items; left > 0; left -= tile_items, line += register_tile_bytes, item += tile_items * down) {
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

/// to = before + sums.
HWY_INLINE void add_registers(const float* before, const float* sums, int count, float* to) {
  const Pairs::D d;
  for (int i = 0; i < count; i += 16) hn::Store(hn::Add(hn::Add(before ? hn::Load(d, before + i) : hn::Zero(d), hn::Load(d, sums + i)), hn::Zero(d)), d, to + i);
}

/// The sums of a tile's rows, added to those of the blocks before (or null), into y. `lanes`: of a row of sums, 16 or 32.
HWY_NOINLINE void finish_registers(const RegisterCut& cut, float* sums, const float* before, std::int64_t row, int rows, std::int64_t column, int columns, int lanes) {
  const GemmProblem& p = cut.p;
  const Pairs::D d;
  const float* const given = static_cast<const float*>(p.bias);
  alignas(64) float turned[register_panel * tile_rows];
  if (cut.turned) {
    add_registers(before, sums, tile_rows * lanes, sums);
    before = nullptr;
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
      auto v = hn::Add(hn::Add(before ? hn::Load(d, before + r * lanes + c) : hn::Zero(d), hn::Load(d, sums + r * lanes + c)), hn::Zero(d));
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
  const std::int64_t row_part = part / cut.panel_parts, panel_part = part % cut.panel_parts;
  const std::int64_t row = even_cut(p.m, cut.row_parts, row_part), rows = even_cut(p.m, cut.row_parts, row_part + 1) - row;
  const std::int64_t tiles = pieces_of(rows, tile_rows), height = std::min<std::int64_t>(rows, tile_rows);
  Tiles shapes;
  for (int t = 0; t < 8; ++t)
    shapes.shaped(t, t < 6 ? static_cast<int>(height) : tile_rows, t == 4 || t == 5 ? tile_pairs : static_cast<int>(std::min<std::int64_t>(p.n, tile_pairs)));
  shapes.begin();

  char* const a_here = static_cast<char*>(scratch) + cut.b_bytes(packed != nullptr);
  float* const totals = reinterpret_cast<float*>(a_here + cut.a_bytes());
  const std::int64_t in_place = cut.pack_a ? 0 : p.k / tile_items;  // units that are read where they lie; of the rest they are packed
  if (cut.a_bytes() != 0) pack_rows(p, row, rows, in_place * tile_items, a_here);
  const std::int64_t ends = cut.pack_a ? cut.units : cut.units - in_place;  // units of a tile in a_here
  alignas(64) float sums[2 * tile_rows * register_panel] = {};
  RegisterBlock block;
  RegisterRest rest;
  rest.y_stride = p.y_stride[0];
  block.a_stride = cut.pack_a ? register_row_bytes : 2 * p.a_stride[0];
  block.a_step = cut.pack_a ? register_tile_bytes : register_row_bytes;
  const bool plain = p.narrow && p.activation == Activation::none && !cut.turned && height == tile_rows;
  const std::int64_t first_panel = even_cut(cut.panels, cut.panel_parts, panel_part), last_panel = even_cut(cut.panels, cut.panel_parts, panel_part + 1);
  for (std::int64_t q = first_panel; q < last_panel; ++q) {
    const std::int64_t column = q * register_panel;
    const int columns = static_cast<int>(std::min<std::int64_t>(p.n - column, register_panel));
    const int vectors = static_cast<int>(pieces_of(columns, tile_pairs)), lanes = vectors * tile_pairs;
    block.width = cut.width(columns);
    for (std::int64_t unit = 0; unit == 0 || unit < cut.units; unit += block_units) {
      const std::int64_t k = unit * tile_items, end = std::min<std::int64_t>(cut.units, unit + block_units);
      const bool last = end == cut.units;
      block.with_end = !cut.pack_a && end > in_place;
      block.units = static_cast<int>(end - unit) - block.with_end;
      block.b = static_cast<const float*>(packed ? packed : scratch);
      if (packed) {
        block.b += cut.units * tile_pairs * column + unit * tile_pairs * block.width;
      } else {
        pack_registers(p, k, std::min<std::int64_t>(p.k - k, k_block), column, columns, block.width, static_cast<float*>(scratch));
      }
      LinesAhead columns_ahead;
      if (tiles >= least_tiles_ahead && (!last || q + 1 < last_panel)) {  // the next block of the panel, or of the next one
        const std::int64_t next_k = last ? 0 : k + k_block, next_column = last ? column + register_panel : column;
        if (packed) {
          columns_ahead = {reinterpret_cast<const char*>(block.b) + 4 * (end - unit) * tile_pairs * block.width, 512, 64};
        } else {
          const std::int64_t down = 2 * p.b_stride[0], along = 2 * p.b_stride[1];
          columns_ahead = {static_cast<const char*>(p.b) + next_k * down + next_column * along, down == 2 ? along : 8 * down, down == 2 ? 64 : down};
        }
      }
      for (std::int64_t t = 0; t < tiles; t += 2) {
        columns_ahead.fetch(t / 2, pieces_of(tiles, 2));
        const int tall = t + 1 < tiles ? 2 : 1;
        const bool to_y = last && plain && columns == lanes;
        float* const total = totals + t * tile_rows * lanes;
        for (int s = 0; s < tall; ++s) {
          const std::int64_t first = first_row(t + s, rows);
          if (cut.pack_a) {
            block.a[s] = a_here + ((t + s) * cut.units + unit) * register_tile_bytes;
          } else {
            block.a[s] = reinterpret_cast<const char*>(static_cast<const std::uint16_t*>(p.a) + (row + first) * p.a_stride[0] + k);
            block.end[s] = a_here + (t + s) * ends * register_tile_bytes;
          }
        }
        block.sums = unit == 0 && !last ? total : sums;  // 0 + a sum is that sum; of -0 the end makes +0
        (tall == 2 ? vectors == 2 ? multiply_registers<2, 2> : multiply_registers<2, 1> : vectors == 2 ? multiply_registers<1, 2> : multiply_registers<1, 1>)(block, rest);
        rest.to = unit == 0 && !last ? RegisterRest::To::nothing : to_y ? RegisterRest::To::y : !last ? RegisterRest::To::total : RegisterRest::To::nothing;
        rest.sums = block.sums;
        rest.bias = p.bias ? static_cast<const float*>(p.bias) + column : nullptr;
        rest.before = unit == 0 ? nullptr : total;
        rest.total = total;
        rest.lanes = lanes;
        rest.tiles = tall;
        for (int s = 0; s < tall; ++s) {
          const std::int64_t at = row + first_row(t + s, rows);
          const int tile = s * tile_rows * lanes;
          if (to_y) rest.y[s] = static_cast<std::uint16_t*>(p.y) + at * p.y_stride[0] + column;
          if (last && !to_y) finish_registers(cut, sums + tile, rest.before ? rest.before + tile : nullptr, at, static_cast<int>(height), column, columns, lanes);
        }
      }
    }
  }
  for (int u = 0; u < block_units; ++u) rest.piece(u);
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
