// src/kernels/gemm/tile-inl.h: computes a register tile of ROWS rows x VECTORS vectors of a product: each element is a
// chain over every block of 256 k, and the block sums are added.
#if defined(ATTN_GEMM_TILE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_GEMM_TILE_INL_H
#undef ATTN_GEMM_TILE_INL_H
#else
#define ATTN_GEMM_TILE_INL_H
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <utility>

#include "kernels/gemm/write_rows_and_edges-inl.h"
#include "kernels/gemm/operand_types-inl.h"
#include "kernels/gemm/tiles.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr int gemm_rows = HWY_TARGET == HWY_AVX2 ? 6 : max_tile_rows;
inline constexpr int gemm_vectors = HWY_TARGET == HWY_AVX2 ? 2 : 3;

/// The operands of a tile for one chunk of k: all of k, or complete blocks. B is packed: [words][panel].
template <class Kind>
struct GemmTile {
  const char* a;
  std::int64_t a_stride;  // bytes between rows
  std::int64_t a_step;    // bytes between words
  const typename Kind::Word* b;
  std::int64_t k;             // items in the chunk
  typename Kind::Sum* total;  // the totals of the earlier chunks: y itself, or separate memory for a bf16 y
  std::int64_t total_stride;
  bool first, last;  // first: the first chunk, so there are no totals yet; last: apply bias and activation, write y
  void* y;
  std::int64_t y_stride;
  int columns;                     // valid columns of the panel
  const typename Kind::Sum* bias;  // or null
  bool narrow;
  Activation activation;
};

template <class Kind, int ROWS, int VECTORS>
HWY_NOINLINE void gemm_tile(const GemmTile<Kind>& tile) {
  using Word = typename Kind::Word;
  using Sum = typename Kind::Sum;
  const typename Kind::D d;
  constexpr int N = static_cast<int>(HWY_LANES(Sum)), panel = VECTORS * N;
  alignas(64) Sum carry[ROWS * panel];  // the totals of the earlier blocks
  const Sum* before = tile.first ? nullptr : tile.total;
  std::int64_t before_stride = tile.total_stride;
  const bool whole = tile.columns == panel;
  if (before && !whole) {
    for (int i = 0; i < ROWS; ++i)
      std::memcpy(carry + i * panel, before + i * before_stride, sizeof(Sum) * static_cast<std::size_t>(tile.columns));
    before = carry;
    before_stride = panel;
  }
  const char* HWY_RESTRICT a = tile.a;
  const Word* HWY_RESTRICT b = tile.b;
  const std::int64_t stride = tile.a_stride, step = tile.a_step;
  for (std::int64_t left = tile.k;;) {
    const std::int64_t block = left < k_block ? left : k_block;
    const std::int64_t words = pieces_of(block, Kind::depth);
    RegisterTile<Kind, ROWS, VECTORS> sums;
    sums.add([=](int i, std::int64_t n) HWY_ATTR { return word_at<Word>(a + i * stride + n * step); }, b, panel, 0,
             words,
             [](const Word* at) __attribute__((always_inline)) HWY_ATTR {
               _Pragma("GCC unroll 16") for (int v = 0; v < VECTORS; ++v)
                   hwy::Prefetch(at + (ROWS <= 4 ? 24 : 8) * panel + v * N);
             });
    auto& sum = sums.sum;
    a += words * step;
    b += words * panel;
    left -= block;
    _Pragma("GCC unroll 16") for (int i = 0; i < ROWS; ++i) {
      _Pragma("GCC unroll 16") for (int v = 0; v < VECTORS; ++v) sum[i][v] =
          hn::Add(before ? hn::LoadU(d, before + i * before_stride + v * N) : hn::Zero(d), sum[i][v]);
    }
    if (left > 0) {
      _Pragma("GCC unroll 16") for (int i = 0; i < ROWS; ++i) {
        _Pragma("GCC unroll 16") for (int v = 0; v < VECTORS; ++v) hn::Store(sum[i][v], d, carry + i * panel + v * N);
      }
      before = carry;
      before_stride = panel;
      continue;
    }
    if (tile.last) {
      _Pragma("GCC unroll 16") for (int v = 0; v < VECTORS; ++v) {
        const auto bias = tile.bias ? hn::LoadU(d, tile.bias + v * N) : hn::Zero(d);
        _Pragma("GCC unroll 16") for (int i = 0; i < ROWS; ++i) sum[i][v] =
            canonical(d, tile.bias ? hn::Add(sum[i][v], bias) : sum[i][v]);
      }
    }
    const bool plain = whole && (!tile.last || tile.activation == Activation::none);
    if constexpr (Kind::depth == 2) {
      if (plain && tile.last && tile.narrow) {
        const hn::Rebind<std::uint16_t, typename Kind::D> halves;
        std::uint16_t* to = static_cast<std::uint16_t*>(tile.y);
        _Pragma("GCC unroll 16") for (int i = 0; i < ROWS; ++i) {
          _Pragma("GCC unroll 16") for (int v = 0; v < VECTORS; ++v)
              hn::StoreU(rounded_to_bf16(d, sum[i][v]), halves, to + i * tile.y_stride + v * N);
        }
        return;
      }
    }
    Sum* to = !plain ? carry : tile.last ? static_cast<Sum*>(tile.y) : tile.total;
    const std::int64_t to_stride = !plain ? panel : tile.last ? tile.y_stride : tile.total_stride;
    _Pragma("GCC unroll 16") for (int i = 0; i < ROWS; ++i) {
      _Pragma("GCC unroll 16") for (int v = 0; v < VECTORS; ++v) hn::StoreU(sum[i][v], d, to + i * to_stride + v * N);
    }
    if (plain) return;
    if (tile.last)
      return finish_rows(tile.activation, tile.narrow, carry, ROWS, panel, tile.columns, tile.y, tile.y_stride);
    return finish_rows(Activation::none, false, carry, ROWS, panel, tile.columns, tile.total, tile.total_stride);
  }
}

/// Returns whether a tile of `rows` rows is compiled. f64 has only four heights, and other heights are composed of
/// them: f64 products are rare, and the other tiles would add 40 KB of code.
template <class Kind>
constexpr bool has_height(int rows) {
  return sizeof(typename Kind::Sum) == 4 || rows == gemm_rows || rows == 4 || rows == 2 || rows == 1;
}
template <class Kind>
constexpr int height_within(int rows) {
  while (!has_height<Kind>(rows)) --rows;
  return rows;
}

template <class Kind>
using GemmTileFunction = void (*)(const GemmTile<Kind>&);

/// Returns the tile function for `rows` rows, for which has_height must be true, and `vectors` vectors.
template <class Kind>
GemmTileFunction<Kind> gemm_tile_of(int rows, int vectors) {
  struct Table {
    GemmTileFunction<Kind> at[gemm_rows][gemm_vectors];
  };
  static constexpr Table table = []<int... CELL>(std::integer_sequence<int, CELL...>) {
    return Table{{gemm_tile<Kind, height_within<Kind>(CELL / gemm_vectors + 1), CELL % gemm_vectors + 1>...}};
  }(std::make_integer_sequence<int, gemm_rows * gemm_vectors>{});
  return table.at[rows - 1][vectors - 1];
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
