// src/kernels/gemm/few_rows_by_blocks-inl.h: multiplies up to 8 rows by blocks of quantised weights, decoded in
// registers.
#if defined(ATTN_GEMM_FEW_ROWS_BY_BLOCKS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_GEMM_FEW_ROWS_BY_BLOCKS_INL_H
#undef ATTN_GEMM_FEW_ROWS_BY_BLOCKS_INL_H
#else
#define ATTN_GEMM_FEW_ROWS_BY_BLOCKS_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "kernels/gemm/blocks-inl.h"
#include "kernels/prefetch/prefetch_line.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
namespace hn = hwy::HWY_NAMESPACE;

/// Computes columns [first, last) of up to M rows of y: each weight is decoded once, in registers. GROUPS vectors of
/// columns at a time give enough chains to hide an FMA's latency. The reads jump in memory, so the next columns are
/// prefetched in the order of addresses.
template <class Kind, class Loader, int M, int GROUPS>
HWY_NOINLINE void few_rows_by_blocks(const GemmProblem& p, std::int64_t first, std::int64_t last) {
  const Tag<float> d;
  constexpr int width = GROUPS * lanes<float>;
  const typename Kind::Left* a[M];
  for (int m = 0; m < M; ++m) a[m] = row_of_a<Kind>(p, m);
  for (std::int64_t column = first; column < last; column += width) {
    const std::int64_t columns = std::min<std::int64_t>(last - column, width);
    BlockRows<GROUPS> rows(p, column, columns);
    // the next columns, which are adjacent in memory: so many bytes for 16 numbers of each of these
    const BlockSize size = block_size(p.b_blocks);
    const std::int64_t share = width * 16 * size.bytes / size.elements;
    const Address next = address_of(p.b) + static_cast<Address>((column + width) * p.b_stride[1]);
    alignas(64) float totals[M][width] = {};
    for (std::int64_t k = 0; k < p.k; k += k_block) {
      Vector<float> sum[GROUPS][M];
      ATTN_UNROLL_FOR (int g = 0; g < GROUPS; ++g)
        ATTN_UNROLL_FOR (int m = 0; m < M; ++m) sum[g][m] = hn::Zero(d);
      decode_columns<Loader>(rows, k, std::min<std::int64_t>(p.k - k, k_block),
                             [&](auto group, std::int64_t i, auto w0, auto w1, auto w2, auto w3)
                                 __attribute__((always_inline)) HWY_ATTR {
                                   if (group == 0 && i % 16 == 0)
                                     for (std::int64_t line = 0; line < share; line += 64)
                                       prefetch_l2_pinned(next + static_cast<Address>((k + i) / 16 * share + line));
                                   if constexpr (Kind::depth == 1) {
                                     ATTN_UNROLL_FOR (int m = 0; m < M; ++m) {
                                       const auto* const x = a[m] + k + i;
                                       const auto chain = Kind::add(x + 1, w1, Kind::add(x, w0, sum[group][m]));
                                       sum[group][m] = Kind::add(x + 3, w3, Kind::add(x + 2, w2, chain));
                                     }
                                   } else {
                                     const auto low = bf16_pair(w0, w1), high = bf16_pair(w2, w3);
                                     ATTN_UNROLL_FOR (int m = 0; m < M; ++m) {
                                       const auto* const x = a[m] + k + i;
                                       sum[group][m] = Kind::add(x + 2, high, Kind::add(x, low, sum[group][m]));
                                     }
                                   }
                                 });
      ATTN_UNROLL_FOR (int g = 0; g < GROUPS; ++g)
        ATTN_UNROLL_FOR (int m = 0; m < M; ++m) {
          float* const total = totals[m] + g * lanes<float>;
          hn::Store(hn::Add(hn::Load(d, total), sum[g][m]), d, total);
        }
    }
    finish_few_rows<Kind>(p, totals[0], static_cast<int>(p.m), width, column, static_cast<int>(columns));
  }
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
