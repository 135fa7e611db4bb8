// src/kernels/attention/tiles/amx_backward_products-inl.h: the products of the backward pass in bf16 by AMX: those of
// bf16_backward_products-inl.h, units of 32 at a time. A broadcast becomes a row of A, a vector a column of B. Chains
// start from the sums in memory, since loading a tile takes no longer than clearing it.
#if defined(ATTN_AMX_BACKWARD_PRODUCTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_AMX_BACKWARD_PRODUCTS_INL_H
#undef ATTN_AMX_BACKWARD_PRODUCTS_INL_H
#else
#define ATTN_AMX_BACKWARD_PRODUCTS_INL_H
#endif

#include "kernels/attention/next_rows.h"
#include "kernels/attention/tiles/backward_products-inl.h"
#include "kernels/x86/amx_product.h"
#include "kernels/x86/bf16_target.h"

#if HWY_TARGET == HWY_AVX3
ATTN_BEFORE_BF16_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {

/// C = A B, or what stands in C and A B. Words of A's rows are B's rows.
struct TileProduct {
  struct Side {
    const void* base;
    std::int64_t stride, step;  // bytes: from a row to the next, from a unit to the next

    const char* at(std::int64_t bytes) const { return static_cast<const char*>(base) + bytes; }
  };
  Side a, b;
  float* c;
  std::int64_t c_stride;
  bool begins;  // C counts as 0, whatever stands there
  // units [first, last) of each tile of rows
  int first[query_block / tile_rows] = {}, last[query_block / tile_rows] = {};

  void from_items(int tile, const RowRange& items) {
    first[tile] = items.begin / tile_items;
    last[tile] = (items.end + tile_items - 1) / tile_items;
  }
};

/// TILES tiles of rows from `row` on, the 32 columns from `column` on, over the units [first, last).
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

/// So many rows and columns, whole 32 of these. Two tiles of rows go together, over the units of both.
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

/// Of so many rows, whole 32 of these, row r of A times column r of the transposed pairs B: a product like the others,
/// so that delta has the order of dP and both are the same number where a row of o is one of V (a row with one key).
/// `c`: room for 32 x 32.
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
