// src/kernels/gemm/amx_block-inl.h: multiplies one block of k for 32 x 32 elements by AMX tiles, and stores the
// previous block's sums meanwhile.
#if defined(ATTN_GEMM_AMX_BLOCK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_GEMM_AMX_BLOCK_INL_H
#undef ATTN_GEMM_AMX_BLOCK_INL_H
#else
#define ATTN_GEMM_AMX_BLOCK_INL_H
#endif

#include <hwy/highway.h>

#include "kernels/gemm/write_rows_and_edges-inl.h"
#include "kernels/gemm/operand_types-inl.h"
#include "kernels/gemm/tiles.h"
#include "kernels/x86/amx_tile_product.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET == HWY_AVX3 && defined(__x86_64__)
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr int amx_panel = 2 * tile_pairs;               // columns of two tiles
inline constexpr int block_units = k_block / tile_items;       // units in a block of k
inline constexpr std::int64_t amx_row_bytes = 2 * tile_items;  // bytes per row of an A tile
inline constexpr std::int64_t amx_tile_bytes = tile_rows * amx_row_bytes;

/// The sums of a finished block of k. They are added to the totals of the earlier blocks, or written to a bf16 y, in
/// four pieces for each tile of rows, between the steps of the next block, so that the tile unit stays busy.
struct FinishedBlock {
  enum class To { nothing, total, y } to = To::nothing;
  const float *sums, *before;  // [rows][lanes]; before: the totals, null if there are no earlier blocks
  int lanes, tiles;
  float* total;
  std::uint16_t* y[2];  // one address per tile of rows
  std::int64_t y_stride;
  const float* bias;  // or null

  HWY_INLINE void piece(int u) const {
    if (to == To::nothing || u >= 4 * tiles) return;
    lanes == 32 ? piece_of<2>(u) : piece_of<1>(u);
  }
  /// Not inlined, because the code has 2.5 KB.
  HWY_NOINLINE void pieces(int u, int end) const {
    for (; u < end; ++u) piece(u);
  }
  template <int VECTORS>
  HWY_INLINE void piece_of(int u) const {
    const Pairs::D d;
    const float* HWY_RESTRICT from = sums + 4 * u * 16 * VECTORS;
    const float* HWY_RESTRICT add = before ? before + 4 * u * 16 * VECTORS : nullptr;
    if (to == To::total) {
      float* HWY_RESTRICT out = total + 4 * u * 16 * VECTORS;
      _Pragma("GCC unroll 8") for (int i = 0; i < 4 * 16 * VECTORS; i += 16)
          hn::Store(hn::Add(hn::Load(d, add + i), hn::Load(d, from + i)), d, out + i);
      return;
    }
    std::uint16_t* row = y[u / 4] + u % 4 * 4 * y_stride;
    const auto low = bias ? hn::Add(hn::LoadU(d, bias), hn::Zero(d)) : hn::Zero(d);  // + 0, so that no sum is -0
    const auto high = bias && VECTORS == 2 ? hn::Add(hn::LoadU(d, bias + 16), hn::Zero(d)) : hn::Zero(d);
    _Pragma("GCC unroll 4") for (int r = 0; r < 4; ++r, from += 16 * VECTORS, row += y_stride) {
      auto left = hn::Load(d, from), right = VECTORS == 2 ? hn::Load(d, from + 16) : left;
      if (add) {
        left = hn::Add(hn::Load(d, add), left);
        if (VECTORS == 2) right = hn::Add(hn::Load(d, add + 16), right);
        add += 16 * VECTORS;
      }
      left = hn::Add(left, low);
      if (VECTORS == 2) right = hn::Add(right, high);
      __m512i halves;  // the processor's instruction; vectors with NaN or denormals are rounded again below
      asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(halves) : "v"(left.raw), "v"(right.raw));
      if ((_mm512_fpclass_ps_mask(left.raw, 0xa1) | _mm512_fpclass_ps_mask(right.raw, 0xa1)) != 0) [[unlikely]]
        halves = _mm512_inserti64x4(_mm512_castsi256_si512(rounded_to_bf16(d, canonical(d, left)).raw),
                                    rounded_to_bf16(d, canonical(d, right)).raw, 1);
      if (VECTORS == 1) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(row), _mm512_castsi512_si256(halves));
      } else {
        _mm512_storeu_si512(row, halves);
      }
    }
  }
};

/// The operands of one block of k for up to 2 x 2 tiles.
struct AmxBlock {
  const char* a[2];    // first items of the two tiles of rows
  const char* end[2];  // the incomplete last unit, padded with 0
  std::int64_t a_stride, a_step;
  const float* b;
  std::int64_t half;  // words from a panel's first 16 columns to the other 16
  std::int64_t row_bytes;
  int units;
  bool with_end;
  float* sums;  // [rows][16 or 32]
};

template <int ROWS, int COLUMNS>
HWY_NOINLINE void multiply_amx_block(const AmxBlock& block, const FinishedBlock& rest) {
  const std::int64_t row = block.row_bytes, tile = tile_pairs * row / 4;
  clear_amx_sums<ROWS, COLUMNS>();
  add_amx_products<ROWS, COLUMNS>(
      0, block.units + block.with_end,
      [&]<int A>(int r, int u) {
        if (u < block.units) tile_load<A>(block.a[r] + u * block.a_step, block.a_stride);
        else tile_load<A>(block.end[r], amx_row_bytes);
      },
      [&]<int B>(int c, int u) { tile_load<B>(block.b + u * tile + c * block.half, row); },
      [&](int u) HWY_ATTR {
        if (ROWS == 2 && COLUMNS == 2) rest.piece(u);
        else rest.pieces(u, u + 1);
      });
  rest.pieces(block.units + block.with_end, block_units);
  store_amx_sums<ROWS, COLUMNS>(block.sums, COLUMNS * tile_pairs);
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
