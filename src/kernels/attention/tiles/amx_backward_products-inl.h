// src/kernels/attention/tiles/amx_backward_products-inl.h: computes the products of bf16_backward_products-inl.h by
// AMX, a unit of 32 items of a chain at a time. What is broadcast there is a row of A here; what is a vector there is a
// row of B. Chains start from the sums in memory, because loading a tile takes no longer than clearing it.
#if defined(ATTN_AMX_BACKWARD_PRODUCTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_AMX_BACKWARD_PRODUCTS_INL_H
#undef ATTN_AMX_BACKWARD_PRODUCTS_INL_H
#else
#define ATTN_AMX_BACKWARD_PRODUCTS_INL_H
#endif

#include "kernels/attention/next_rows.h"
#include "kernels/attention/tiles/backward_products-inl.h"
#include "kernels/x86/amx_tile_product.h"
#include "kernels/x86/bf16_target.h"

#if HWY_TARGET == HWY_AVX3
ATTN_BEFORE_BF16_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {

/// C = A B, or C += A B. Word n (a pair of items) of a row of A is multiplied by row n of B.
struct TileProduct {
  struct Side {
    const void* base;
    std::int64_t stride, step;  // bytes: from a row to the next, from a unit to the next

    const char* at(std::int64_t bytes) const { return static_cast<const char*>(base) + bytes; }
  };
  Side a, b;
  float* c;
  std::int64_t c_stride;
  bool begins;  // whether C begins at 0, whatever its memory holds
  // tile t of rows is multiplied over the units [first[t], last[t])
  int first[query_block / tile_rows] = {}, last[query_block / tile_rows] = {};

  void from_items(int tile, const RowRange& items) {
    first[tile] = items.begin / tile_items;
    last[tile] = (items.end + tile_items - 1) / tile_items;
  }
};

/// Computes C for TILES tiles of rows from `row` on and the 32 columns from `column` on, over the units [first, last).
template <int TILES>
HWY_NOINLINE void tile_sums(const TileProduct& x, int row, std::int64_t column, int first, int last,
                            TilePrefetch& ahead) {
  float* const c = x.c + row * x.c_stride + column;
  if (x.begins) clear_amx_sums<TILES, 2>();
  else load_amx_sums<TILES, 2>(c, x.c_stride);
  ahead.fetch();
  const auto load_a = [&]<int A>(int r, int n) {
    tile_load<A>(x.a.at((row + r * tile_rows) * x.a.stride + n * x.a.step), x.a.stride);
  };
  const auto load_b = [&]<int B>(int half, int n) {
    tile_load<B>(x.b.at(4 * column + n * x.b.step + 64 * half), x.b.stride);
  };
  add_amx_products<TILES, 2>(first, last, load_a, load_b);
  store_amx_sums<TILES, 2>(c, x.c_stride);
}

/// Computes rows [0, end) and columns [0, columns) of C; `columns` is a multiple of 32. Two tiles of rows are computed
/// together, over the units that either of them needs.
HWY_NOINLINE inline void tile_product(const TileProduct& x, AmxTiles& tiles, int end, std::int64_t columns,
                                      TilePrefetch& ahead) {
  const auto shaped = [&](int rows) {
    for (const int tile : {0, 1, 4}) tiles.shaped(tile, rows, tile_pairs);
    tiles.begin();
  };
  for (int row = 0, rows; row < end; row += rows) {
    rows = end - row >= 2 * tile_rows ? 2 * tile_rows : end - row >= tile_rows ? tile_rows : end - row;
    const int tile = row / tile_rows;
    int first = x.first[tile], last = x.last[tile];
    if (rows > tile_rows && x.first[tile + 1] < x.last[tile + 1]) {
      first = first < last && first < x.first[tile + 1] ? first : x.first[tile + 1];
      last = last > x.last[tile + 1] ? last : x.last[tile + 1];
    }
    if (first >= last && !x.begins) continue;
    if (rows < tile_rows) shaped(rows);
    for (std::int64_t c = 0; c < columns; c += 32)
      rows == 2 * tile_rows ? tile_sums<2>(x, row, c, first, last, ahead) : tile_sums<1>(x, row, c, first, last, ahead);
    if (rows < tile_rows) shaped(tile_rows);
  }
}

/// Computes to[r] = row r of A times column r of B (transposed pairs), in groups of 32 rows. It is the diagonal of a
/// tile product, so delta has dP's order of operations. If a row sees one key, its output is a row of V, and delta and
/// dP are then the same number. `c`: memory for 32 x 32 floats.
HWY_NOINLINE inline void tile_diagonal(const Matrix<std::uint16_t>& a, const std::uint32_t* b, AmxTiles& tiles,
                                       int rows, std::int64_t items, float* c, float* to, TilePrefetch& ahead) {
  constexpr int R = query_block, count = 2 * tile_rows;
  for (int row = 0; row < rows; row += count) {
    TileProduct x{{a.row(row), 2 * a.stride, 2 * tile_items}, {b + row, 4 * R, 4 * R * tile_pairs}, c, count, true};
    for (int tile = 0; tile < 2; ++tile) x.from_items(tile, {0, static_cast<int>(items)});
    tile_product(x, tiles, count, count, ahead);
    for (int r = 0; r < count; ++r) to[row + r] = c[r * count + r];
  }
}

}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
#endif
