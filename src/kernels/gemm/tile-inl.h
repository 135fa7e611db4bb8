// src/kernels/gemm/tile-inl.h: ROWS x VECTORS elements of a product, each one chain of FMAs over at most 256 k.
#if defined(ATTN_GEMM_TILE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_GEMM_TILE_INL_H
#undef ATTN_GEMM_TILE_INL_H
#else
#define ATTN_GEMM_TILE_INL_H
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstring>
#include <limits>
#include <utility>

#include "kernels/gemm/tiles.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr int gemm_rows = HWY_TARGET == HWY_AVX2 ? 6 : max_tile_rows;
inline constexpr int gemm_vectors = HWY_TARGET == HWY_AVX2 ? 2 : 3;

/// What a tile reads and writes. B is packed: [steps][panel] with the panel's columns side by side.
template <typename T>
struct GemmTile {
  const T* a;
  std::int64_t a_stride;  // between rows
  std::int64_t a_step;    // between columns
  const T* b;
  int steps;
  T* y;
  std::int64_t y_stride;
  int columns;    // of the panel that exist
  bool first;     // the first block of k: y is written, not read
  bool last;      // the last block of k: the bias comes in, any NaN becomes the canonical one
  const T* bias;  // or null
};

template <typename T, int ROWS, int VECTORS>
HWY_NOINLINE void gemm_tile(const GemmTile<T>& tile) {
  const hn::ScalableTag<T> d;
  constexpr int N = static_cast<int>(HWY_LANES(T)), panel = VECTORS * N;
  hn::Vec<decltype(d)> sum[ROWS][VECTORS];
  _Pragma("GCC unroll 16") for (int i = 0; i < ROWS; ++i) _Pragma("GCC unroll 16") for (int v = 0; v < VECTORS; ++v) sum[i][v] = hn::Zero(d);
  const T* HWY_RESTRICT a = tile.a;
  const T* HWY_RESTRICT b = tile.b;
  const std::int64_t stride = tile.a_stride, step = tile.a_step;
  _Pragma("GCC unroll 2") for (int k = 0; k < tile.steps; ++k, a += step, b += panel) {
    hn::Vec<decltype(d)> x[VECTORS];
    _Pragma("GCC unroll 16") for (int v = 0; v < VECTORS; ++v) x[v] = hn::Load(d, b + v * N);
    hwy::Prefetch(b + 8 * panel);
    _Pragma("GCC unroll 16") for (int i = 0; i < ROWS; ++i) {
      const auto y = hn::Set(d, a[i * stride]);
      _Pragma("GCC unroll 16") for (int v = 0; v < VECTORS; ++v) sum[i][v] = hn::MulAdd(y, x[v], sum[i][v]);
    }
  }
  const bool whole = tile.columns == panel;
  alignas(64) T edge[panel];
  _Pragma("GCC unroll 16") for (int i = 0; i < ROWS; ++i) {
    T* row = tile.y + i * tile.y_stride;
    T* place = row;
    if (!whole) {
      place = edge;
      if (!tile.first) std::memcpy(edge, row, sizeof(T) * static_cast<std::size_t>(tile.columns));
    }
    _Pragma("GCC unroll 16") for (int v = 0; v < VECTORS; ++v) {
      auto value = hn::Add(tile.first ? hn::Zero(d) : hn::LoadU(d, place + v * N), sum[i][v]);
      if (tile.last) {
        if (tile.bias) value = hn::Add(value, hn::LoadU(d, tile.bias + v * N));
        value = hn::IfThenElse(hn::Eq(value, value), value, hn::Set(d, std::numeric_limits<T>::quiet_NaN()));
      }
      hn::StoreU(value, d, place + v * N);
    }
    if (!whole) std::memcpy(row, edge, sizeof(T) * static_cast<std::size_t>(tile.columns));
  }
}

template <typename T>
using GemmTileFunction = void (*)(const GemmTile<T>&);

/// The tile of `rows` rows and `vectors` vectors.
template <typename T>
GemmTileFunction<T> gemm_tile_of(int rows, int vectors) {
  struct Table {
    GemmTileFunction<T> at[gemm_rows][gemm_vectors];
  };
  static constexpr Table table = []<int... CELL>(std::integer_sequence<int, CELL...>) {
    return Table{{gemm_tile<T, CELL / gemm_vectors + 1, CELL % gemm_vectors + 1>...}};
  }(std::make_integer_sequence<int, gemm_rows * gemm_vectors>{});
  return table.at[rows - 1][vectors - 1];
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
