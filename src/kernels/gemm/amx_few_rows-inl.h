// src/kernels/gemm/amx_few_rows-inl.h: multiplies one or two rows by a b of contiguous rows with vectors; the sums
// have the bits of AMX tiles.
#if defined(ATTN_GEMM_AMX_FEW_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_GEMM_AMX_FEW_ROWS_INL_H
#undef ATTN_GEMM_AMX_FEW_ROWS_INL_H
#else
#define ATTN_GEMM_AMX_FEW_ROWS_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "kernels/x86/amx.h"
#include "kernels/gemm/few_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET == HWY_AVX3 && defined(__x86_64__)

/// Treats denormals as 0 while the object exists, as AMX tiles do.
class FlushedDenormals {
 public:
  FlushedDenormals() {
    asm volatile("stmxcsr %0" : "=m"(before_) : : "memory");
    const std::uint32_t flushing = before_ | 0x8040;
    asm volatile("ldmxcsr %0" : : "m"(flushing) : "memory");
  }
  ~FlushedDenormals() { asm volatile("ldmxcsr %0" : : "m"(before_) : "memory"); }
  FlushedDenormals(const FlushedDenormals&) = delete;
  FlushedDenormals& operator=(const FlushedDenormals&) = delete;

 private:
  std::uint32_t before_;
};

/// Adds a unit (up to 32 items of k from `at` on) to sums [M][width]; among each 32 columns the even ones come first. A
/// 32-bit word of a row of b holds two columns. A shift or a mask makes each of them an f32, so nothing must be
/// interleaved.
template <int M>
HWY_NOINLINE void add_unit(const GemmProblem& p, std::int64_t at, int items, std::int64_t first, int columns,
                           float* sums, int width) {
  const std::int64_t stride = p.b_stride[0];
  float a[M][tile_items];
  for (int m = 0; m < M; ++m)
    for (int i = 0; i < items; ++i)
      a[m][i] = __builtin_bit_cast(
          float,
          std::uint32_t{static_cast<const std::uint16_t*>(p.a)[m * p.a_stride[0] + (at + i) * p.a_stride[1]]} << 16);
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  for (int c = 0; c < columns; c += 32) {
    const __mmask32 there = columns - c >= 32 ? 0xffffffffu : (1u << (columns - c)) - 1;
    const std::uint16_t* b = static_cast<const std::uint16_t*>(p.b) + at * stride + first + c;
    __m512 chain[2][2][M];  // [even, odd k][even, odd columns][row]
    _Pragma("GCC unroll 2") for (int m = 0; m < M; ++m) chain[0][0][m] = chain[0][1][m] = chain[1][0][m] =
        chain[1][1][m] = _mm512_setzero_ps();
    const auto step = [&](int i, __m512(&of)[2][M]) __attribute__((always_inline)) {
      const __m512i words = _mm512_maskz_loadu_epi16(there, b);
      _mm_prefetch(b + tile_items * stride, _MM_HINT_T0);
      b += stride;
      const __m512 even = _mm512_castsi512_ps(_mm512_slli_epi32(words, 16)),
                   odd = _mm512_castsi512_ps(_mm512_and_si512(words, upper));
      _Pragma("GCC unroll 2") for (int m = 0; m < M; ++m) {
        const __m512 x = _mm512_set1_ps(a[m][i]);
        of[0][m] = _mm512_fmadd_ps(x, even, of[0][m]);
        of[1][m] = _mm512_fmadd_ps(x, odd, of[1][m]);
      }
    };
    for (int i = 0; i + 1 < items; i += 2) {
      step(i, chain[0]);
      step(i + 1, chain[1]);
    }
    if (items % 2 != 0) step(items - 1, chain[0]);
    _Pragma("GCC unroll 2") for (int m = 0; m < M; ++m) {
      _Pragma("GCC unroll 2") for (int half = 0; half < 2; ++half) {
        float* const sum = sums + m * width + c + 16 * half;
        _mm512_store_ps(sum, _mm512_add_ps(_mm512_load_ps(sum), _mm512_add_ps(chain[0][half][m], chain[1][half][m])));
      }
    }
  }
}

/// Computes columns [first, first + columns). `scratch` holds the sums of a block and then the totals, each [m][columns
/// rounded up to whole panels].
HWY_NOINLINE void amx_few_rows(const GemmProblem& p, std::int64_t first, int columns, float* scratch) {
  const int width = static_cast<int>(pieces_of(columns, 32)) * 32, rows = static_cast<int>(p.m), all = rows * width;
  float* const sums = scratch;
  float* const totals = scratch + all;
  std::fill(totals, totals + all, 0.0f);
  for (std::int64_t k = 0; k < p.k; k += k_block) {
    std::fill(sums, sums + all, 0.0f);
    {
      const FlushedDenormals flushed;
      const std::int64_t end = std::min<std::int64_t>(p.k, k + k_block);
      for (std::int64_t at = k; at < end; at += tile_items)
        (rows == 1 ? add_unit<1> : add_unit<2>)(p, at, static_cast<int>(std::min<std::int64_t>(end - at, tile_items)),
                                                first, columns, sums, width);
    }
    for (int i = 0; i < all; i += 16)
      _mm512_store_ps(totals + i, _mm512_add_ps(_mm512_load_ps(totals + i), _mm512_load_ps(sums + i)));
  }
  for (int i = 0; i < all; i += 32)
    for (int c = 0; c < 32; ++c) sums[i + c] = totals[i + c / 2 + c % 2 * 16];
  finish_few_rows<Pairs>(p, sums, rows, width, first, columns);
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
