// src/kernels/gemm/few_rows_transposed-inl.h: multiplies up to 8 rows by a B whose columns are contiguous
// along k (weights [N, K]), transposed in registers.
#if defined(ATTN_GEMM_FEW_ROWS_TRANSPOSED_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_GEMM_FEW_ROWS_TRANSPOSED_INL_H
#undef ATTN_GEMM_FEW_ROWS_TRANSPOSED_INL_H
#else
#define ATTN_GEMM_FEW_ROWS_TRANSPOSED_INL_H
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>

#include "kernels/gemm/pack-inl.h"
#include "kernels/prefetch/prefetch_line.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
namespace hn = hwy::HWY_NAMESPACE;

/// The cache lines of B in the order of addresses, from 4 KB after `at` on, to be prefetched. `side_by_side`: columns
/// have no gaps, so one line of every 16 is also loaded.
class LinesInOrder {
 public:
  LinesInOrder(const char* at, const char* end, bool side_by_side) : at_(at), end_(end), side_by_side_(side_by_side) {}
  /// Returns the address of the next LINES lines to prefetch; near the end of B `otherwise`, lines that are cached
  /// already.
  template <int LINES>
  HWY_INLINE const char* next(const char* otherwise) {
    constexpr std::int64_t bytes = LINES * 64, before = 4096;
    if (end_ - at_ <= bytes + before) return otherwise;
    if (side_by_side_ && (LINES == 16 || reinterpret_cast<std::uintptr_t>(at_) / bytes % (16 / LINES) == 0))
      static_cast<void>(*static_cast<const volatile char*>(at_));
    at_ += bytes;
    return at_ - bytes + before;
  }

 private:
  const char *at_, *end_;
  bool side_by_side_;
};

/// The number of words along k that are transposed in registers at a time.
inline constexpr int transposed_words = HWY_TARGET == HWY_AVX3 ? 16 : 4;

/// Loads and transposes `words` words (up to transposed_words) of `columns` columns (up to a vector) that are
/// contiguous along k. Missing words and columns are 0.
template <class Kind>
HWY_NOINLINE void transpose_edge(const char* from, std::int64_t column_bytes, int columns, int words,
                                 typename Kind::V (&out)[transposed_words]) {
  constexpr int N = static_cast<int>(HWY_LANES(float));
  alignas(64) float square[transposed_words][N] = {};
  for (int c = 0; c < columns; ++c)
    for (int w = 0; w < words; ++w)
      std::memcpy(&square[w][c], from + c * column_bytes + w * static_cast<int>(sizeof(float)), sizeof(float));
  for (int w = 0; w < transposed_words; ++w) out[w] = hn::Load(typename Kind::D(), square[w]);
}

/// Loads and transposes transposed_words words of a vector of columns.
template <class Kind>
HWY_INLINE void transpose_columns(const char* from, std::int64_t column_bytes,
                                  typename Kind::V (&out)[transposed_words]) {
#if HWY_TARGET == HWY_AVX3
  __m512 x[16];
  transpose_words(from, column_bytes, x);
  _Pragma("GCC unroll 16") for (int i = 0; i < 16; ++i) out[i] = typename Kind::V{x[i]};
#else
  const typename Kind::D d;
  RowsInStep<typename Kind::D>(reinterpret_cast<const float*>(from),
                               column_bytes / static_cast<std::int64_t>(sizeof(float)))
      .next(d, out);
#endif
}

/// Computes columns [first, last) of y if B is contiguous along k (weights [N, K]), GROUPS vectors of columns at a
/// time. Lanes are columns: their words are transposed in registers. The reads jump in memory, so the data of the next
/// group is prefetched in the order of addresses (`far`: B exceeds the caches; otherwise prefetching would only cost
/// time). Lines are prefetched one by one between the sums, because many prefetches at once delay each other and the
/// next loads (500 MB: 1.17 to 1.2 times as long on a fifth-generation AMD EPYC). If columns have no gaps, one line of
/// 16 is loaded so that the processor's own prefetcher follows; loading every line would wait for memory (1.4 times as
/// long on a fourth-generation one).
template <class Kind, int M, int GROUPS>
HWY_NOINLINE void few_rows_transposed(const GemmProblem& p, std::int64_t first, std::int64_t last, bool far) {
  const typename Kind::D d;
  constexpr int N = static_cast<int>(HWY_LANES(float)), width = GROUPS * N, lines = N * transposed_words / 16;
  const std::int64_t stride = p.b_stride[1],
                     stride_bytes = stride * static_cast<std::int64_t>(sizeof(typename Kind::Item));
  const typename Kind::Left* a[M];
  for (int m = 0; m < M; ++m) a[m] = row_of_a<Kind>(p, m);
  const char *const all = static_cast<const char*>(p.b), *const end = all + (p.n - 1) * stride_bytes;
  for (std::int64_t column = first; column < last; column += width) {
    const char* const b = all + column * stride_bytes;
    LinesInOrder ahead(b + width * stride_bytes, end, stride == p.k);
    const int columns = static_cast<int>(std::min<std::int64_t>(last - column, width)),
              groups = static_cast<int>(pieces_of(columns, N));
    alignas(64) float total[M][width] = {};
    for (std::int64_t k = 0; k < p.k; k += k_block) {
      const int items = static_cast<int>(std::min<std::int64_t>(p.k - k, k_block)), words = items / Kind::depth;
      typename Kind::V sum[M][GROUPS];
      _Pragma("GCC unroll 8") for (int m = 0; m < M; ++m) _Pragma("GCC unroll 4") for (int g = 0; g < GROUPS; ++g)
          sum[m][g] = hn::Zero(d);
      for (int w = 0; w < words; w += transposed_words) {
        const std::int64_t item = k + w * Kind::depth;
        _Pragma("GCC unroll 4") for (int g = 0; g < GROUPS; ++g) {
          if (g >= groups) break;
          const char* const from =
              b + g * N * stride_bytes + item * static_cast<std::int64_t>(sizeof(typename Kind::Item));
          const int there = std::min(N, columns - g * N), count = std::min(transposed_words, words - w);
          typename Kind::V x[transposed_words];
          if (there == N && count == transposed_words) {
            const char* const next = far ? ahead.next<lines>(from) : from;
            transpose_columns<Kind>(from, stride_bytes, x);
            _Pragma("GCC unroll 16") for (int i = 0; i < transposed_words; ++i) {
              prefetch_share<lines>(PrefetchAddresses<1>{{address_of(next)}}, i, transposed_words);
              _Pragma("GCC unroll 8") for (int m = 0; m < M; ++m) sum[m][g] =
                  Kind::add(a[m] + item + i * Kind::depth, x[i], sum[m][g]);
            }
          } else {
            transpose_edge<Kind>(from, stride_bytes, there, count, x);
            for (int i = 0; i < count; ++i)
              _Pragma("GCC unroll 8") for (int m = 0; m < M; ++m) sum[m][g] =
                  Kind::add(a[m] + item + i * Kind::depth, x[i], sum[m][g]);
          }
        }
      }
      if constexpr (Kind::depth > 1) {
        if (items % Kind::depth != 0) {  // an odd last item
          const auto* last_items = reinterpret_cast<const typename Kind::Item*>(b) + p.k - 1;
          _Pragma("GCC unroll 4") for (int g = 0; g < GROUPS; ++g) {
            alignas(64) float x[N] = {};
            for (int c = 0; c < std::min(N, columns - g * N); ++c)
              x[c] = Kind::word(last_items + (g * N + c) * stride, nullptr);
            _Pragma("GCC unroll 8") for (int m = 0; m < M; ++m) sum[m][g] =
                Kind::add_odd(a[m] + p.k - 1, hn::Load(d, x), sum[m][g]);
          }
        }
      }
      _Pragma("GCC unroll 8") for (int m = 0; m < M; ++m) {
        _Pragma("GCC unroll 4") for (int g = 0; g < GROUPS; ++g)
            hn::Store(hn::Add(hn::Load(d, total[m] + N * g), sum[m][g]), d, total[m] + N * g);
      }
    }
    finish_few_rows<Kind>(p, total[0], static_cast<int>(p.m), width, column, columns);
  }
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
