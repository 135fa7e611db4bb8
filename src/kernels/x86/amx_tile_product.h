// src/kernels/x86/amx_tile_product.h: defines the loop of every AMX product: tiles of rows of A times tiles of columns
// of B, with the sums in tile registers.
#pragma once
#include "kernels/x86/amx.h"

#if defined(__x86_64__)
#include <cstdint>
#include <utility>

namespace attn::kernels {

/// The use of the tile registers: 0 to 3 hold sums, row by row; 4 and 5 are for A, 6 and 7 for B. If two rows of tiles
/// are computed, both registers of A and of B hold a tile. If one is, a tile is loaded into the first of the two; the
/// second has another shape, for a last unit that is incomplete.
inline constexpr int amx_sums = 0, amx_a = 4, amx_b = 6;

/// Calls f.operator()<I>() for I = 0 ... COUNT - 1.
template <int COUNT, class F>
[[gnu::always_inline]] inline void for_each_amx_tile(const F& f) {
  [&]<int... I>(std::integer_sequence<int, I...>)
      __attribute__((always_inline)) { (f.template operator()<I>(), ...); }(std::make_integer_sequence<int, COUNT>());
}

/// Calls f.operator()<REGISTER>(row of tiles, column of tiles) for all sums.
template <int ROWS, int COLUMNS, class F>
[[gnu::always_inline]] inline void for_each_amx_sum(const F& f) {
  for_each_amx_tile<ROWS * COLUMNS>(
      [&]<int I>() __attribute__((always_inline)) { f.template operator()<amx_sums + I>(I / COLUMNS, I % COLUMNS); });
}
template <int ROWS, int COLUMNS>
[[gnu::always_inline]] inline void clear_amx_sums() {
  for_each_amx_sum<ROWS, COLUMNS>([]<int C>(int, int) __attribute__((always_inline)) { tile_zero<C>(); });
}
/// Load and store the sums, f32 in rows that are `stride` floats apart.
template <int ROWS, int COLUMNS>
[[gnu::always_inline]] inline void load_amx_sums(const float* c, std::int64_t stride) {
  for_each_amx_sum<ROWS, COLUMNS>([&]<int C>(int row, int column) __attribute__((always_inline)) {
    tile_load<C>(c + row * tile_rows * stride + column * tile_rows, 4 * stride);
  });
}
template <int ROWS, int COLUMNS>
[[gnu::always_inline]] inline void store_amx_sums(float* c, std::int64_t stride) {
  for_each_amx_sum<ROWS, COLUMNS>([&]<int C>(int row, int column) __attribute__((always_inline)) {
    tile_store<C>(c + row * tile_rows * stride + column * tile_rows, 4 * stride);
  });
}

/// Adds the products of units [first, last) (32 items of k each) to the sums. load_a.operator()<REGISTER>(row of tiles,
/// unit) and load_b.operator()<REGISTER>(column of tiles, unit) load a tile; `between(unit)` is called after a unit's
/// products. REST: 1 for the registers of an incomplete unit.
template <int ROWS, int COLUMNS, int REST = 0, class LoadA, class LoadB, class Between>
[[gnu::always_inline]] inline void add_amx_products(int first, int last, const LoadA& load_a, const LoadB& load_b,
                                                    const Between& between) {
  static_assert(REST == 0 || ROWS != 2);
  for (int u = first; u < last; ++u) {
    for_each_amx_tile<ROWS>([&]<int R>() __attribute__((always_inline)) {
      constexpr int a = amx_a + (ROWS == 2 ? R : REST);
      load_a.template operator()<a>(R, u);
      for_each_amx_tile<COLUMNS>([&]<int C>() __attribute__((always_inline)) {
        constexpr int b = amx_b + (ROWS == 2 ? C : REST);
        if constexpr (R == 0) load_b.template operator()<b>(C, u);
        tile_dot<amx_sums + R * COLUMNS + C, a, b>();
      });
    });
    between(u);
  }
}
template <int ROWS, int COLUMNS, int REST = 0, class LoadA, class LoadB>
[[gnu::always_inline]] inline void add_amx_products(int first, int last, const LoadA& load_a, const LoadB& load_b) {
  add_amx_products<ROWS, COLUMNS, REST>(first, last, load_a, load_b, [](int) {});
}

}  // namespace attn::kernels
#endif
