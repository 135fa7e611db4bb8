// src/kernels/gemm/few_rows-inl.h: computes products of up to 8 rows: B is read once, in place, at memory
// bandwidth.
#if defined(ATTN_GEMM_FEW_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_GEMM_FEW_ROWS_INL_H
#undef ATTN_GEMM_FEW_ROWS_INL_H
#else
#define ATTN_GEMM_FEW_ROWS_INL_H
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <type_traits>

#include "kernels/gemm/few_rows_by_blocks-inl.h"
#include "kernels/gemm/few_rows_transposed-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
namespace hn = hwy::HWY_NAMESPACE;

/// Returns the number of rows that a kernel computes for m rows: 1, 4 or 8 (f64: 1 or 8), or 2 on AVX-512. Only the
/// kernel that transposes columns of a B beyond the caches computes 2; for the others `without_two` makes 4 of it.
/// Reading B takes most of the time, so a kernel for each number of rows would only add code. The extra rows repeat the
/// last one and are not stored.
template <class Kind>
constexpr int computed_rows(std::int64_t m) {
  if (m <= 1) return 1;
  if (sizeof(typename Kind::Sum) == 8 || m > 4) return 8;
  return m == 2 && HWY_TARGET == HWY_AVX3 ? 2 : 4;
}
constexpr int without_two(int rows) { return rows == 2 ? 4 : rows; }

/// Computes columns [first, last) of y if the rows of B are contiguous: 8 words of k at a time, for all columns of the
/// part. `scratch` holds the sums of the current block of k, [M][width], then the totals of the blocks before it,
/// [M][width]. The 16-bit B of an f32 product is widened first, 64 columns at a time.
template <class Kind, int M>
HWY_NOINLINE void multiply_few_rows(const GemmProblem& p, std::int64_t first, std::int64_t last,
                                    typename Kind::Sum* scratch) {
  using Item = typename Kind::Item;
  using Sum = typename Kind::Sum;
  const typename Kind::D d;
  constexpr int N = static_cast<int>(HWY_LANES(Sum)), steps = 8;
  const bool half = Kind::depth == 1 && p.has_half_b();
  const std::int64_t stride = p.b_stride[0], item_bytes = stored_bytes<Kind>(p);
  const int columns = static_cast<int>(last - first), width = static_cast<int>(pieces_of(columns, N)) * N;
  Sum* const sums = scratch;
  Sum* const totals = scratch + M * width;
  alignas(64) float wide[sizeof(Item) == 4 ? steps * wide_items : 1];
  std::fill(totals, totals + M * width, Sum{0});
  for (std::int64_t k = 0; k < p.k; k += k_block) {
    const std::int64_t block_end = std::min<std::int64_t>(p.k, k + k_block);
    std::fill(sums, sums + M * width, Sum{0});
    for (std::int64_t at = k; at < block_end; at += steps * Kind::depth) {
      const int items = static_cast<int>(std::min<std::int64_t>(block_end - at, steps * Kind::depth)),
                words = static_cast<int>(pieces_of(items, Kind::depth));
      typename Kind::Word a[M][steps];
      for (int m = 0; m < M; ++m)
        for (int w = 0; w < words; ++w) {
          const Item* item = row_of_a<Kind>(p, m) + at + w * Kind::depth;
          a[m][w] = Kind::word(item, (w + 1) * Kind::depth <= items ? item + 1 : nullptr);
        }
      const char* const stored = static_cast<const char*>(p.b) + (at * stride + first) * item_bytes;
      const Item* b = reinterpret_cast<const Item*>(stored);  // its first column is b_column
      std::int64_t b_stride = stride;
      int b_column = 0;
      const auto row_words = [&](int c, int w) HWY_ATTR {
        const Item* one = b + w * Kind::depth * b_stride + c - b_column;
        const Item* two = Kind::depth == 2 && (w + 1) * Kind::depth <= items ? one + b_stride : nullptr;
        if (c + N <= columns) return Kind::words(one, two);
        alignas(64) typename Kind::Word edge[N] = {};
        for (int i = 0; c + i < columns; ++i) edge[i] = Kind::word(one + i, two ? two + i : nullptr);
        return hn::Load(d, edge);
      };
      for (int c = 0; c < width; c += N) {
        if (half && c % wide_items == 0) {
          widen_rows(p.b_element, stored + c * item_bytes, stride, items, std::min(columns - c, wide_items), wide,
                     wide_items);
          b = reinterpret_cast<const Item*>(wide);
          b_stride = wide_items;
          b_column = c;
        }
        typename Kind::V sum[M];
        _Pragma("GCC unroll 8") for (int m = 0; m < M; ++m) sum[m] = hn::Load(d, sums + m * width + c);
        if (items == steps * Kind::depth && c + N <= columns) {
          _Pragma("GCC unroll 8") for (int w = 0; w < steps; ++w) {
            const Item* one = b + w * Kind::depth * b_stride + c - b_column;
            const auto x = Kind::words(one, one + b_stride);
            _Pragma("GCC unroll 2") for (int r = 0; r < Kind::depth; ++r)
                hwy::Prefetch(stored + (((w + steps) * Kind::depth + r) * stride + c) * item_bytes);
            _Pragma("GCC unroll 8") for (int m = 0; m < M; ++m) sum[m] = Kind::step(hn::Set(d, a[m][w]), x, sum[m]);
          }
        } else {
          for (int w = 0; w < words; ++w) {
            const auto x = row_words(c, w);
            _Pragma("GCC unroll 8") for (int m = 0; m < M; ++m) sum[m] = Kind::step(hn::Set(d, a[m][w]), x, sum[m]);
          }
        }
        _Pragma("GCC unroll 8") for (int m = 0; m < M; ++m) hn::Store(sum[m], d, sums + m * width + c);
      }
    }
    for (int c = 0; c < M * width; c += N)
      hn::Store(hn::Add(hn::Load(d, totals + c), hn::Load(d, sums + c)), d, totals + c);
  }
  finish_few_rows<Kind>(p, totals, static_cast<int>(p.m), width, first, columns);
}

/// Splits a product of few rows into parts of columns: a multiple of 32 columns each, except for the last part.
template <class Kind>
struct FewRowsSplit {
  static constexpr std::int64_t unit = 32;
  const GemmProblem& p;
  std::int64_t units = pieces_of(p.n, unit);
  std::int64_t bytes = p.n * p.k * stored_bytes<Kind>(p);
  bool transposed = p.b_stride[0] == 1 && p.b_stride[1] != 1;
  std::int64_t parts =
      std::max<std::int64_t>(1, std::min(transposed ? units : parts_of_rows(),
                                         std::min<std::int64_t>(bytes / few_rows_part_bytes, most_few_rows_parts)));

  explicit FewRowsSplit(const GemmProblem& problem) : p(problem) {}
  /// Returns the number of parts if the rows of B are contiguous. Parts are wide, because the processor's prefetcher
  /// follows long runs; every thread gets the same number, but there is at most one part for each 128 columns, rounded
  /// up.
  std::int64_t parts_of_rows() const {
    return std::min(pieces_of(units, 4), pieces_of(pieces_of(units, few_rows_run_units), p.threads) * p.threads);
  }
  /// Returns whether this kernel computes the product. A's columns are adjacent. B is blocks, or its rows are
  /// contiguous, or its columns are contiguous along k; columns need words of 4 bytes, and without AVX-512, which
  /// transposes in pieces, a 16-bit B needs an even stride.
  static bool takes(const GemmProblem& p) {
    if (p.m > few_rows_most || (p.a_stride[1] != 1 && p.k > 1)) return false;
    if (p.has_blocks()) return true;
    const bool transposed = p.b_stride[0] == 1 && p.b_stride[1] != 1;
    if (!transposed) return p.b_stride[1] == 1;
    return sizeof(typename Kind::Word) == 4 && (HWY_TARGET == HWY_AVX3 || !p.has_half_b() || p.b_stride[1] % 2 == 0);
  }
  std::int64_t column(std::int64_t part) const { return std::min(p.n, even_cut(units, parts, part) * unit); }
  std::size_t scratch_bytes() const {
    return transposed
               ? 0
               : 2 * sizeof(typename Kind::Sum) *
                     static_cast<std::size_t>(without_two(computed_rows<Kind>(p.m)) * pieces_of(units, parts) * unit);
  }
};

/// Computes a part of a B whose columns are contiguous along k. `groups` vectors of columns give enough chains to hide
/// an FMA's latency, as far as registers allow. `far`: B exceeds the caches.
template <class Kind, int M>
void transposed_part(const GemmProblem& p, std::int64_t first, std::int64_t last, bool far) {
  constexpr bool widens = !std::is_same_v<typename Kind::Left, typename Kind::Item>;
  constexpr int groups = HWY_TARGET == HWY_AVX3 || M > 4 ? 1 : M == 1 ? 4 : 2;
  few_rows_transposed<Kind, widens ? without_two(M) : M, groups>(p, first, last, far);
}

template <class Kind, int M>
void few_rows_part(const GemmProblem& p, std::int64_t part, void* scratch) {
  const FewRowsSplit<Kind> cut(p);
  const std::int64_t first = cut.column(part), last = cut.column(part + 1);
  const bool far = cut.bytes > few_rows_cached_bytes;
  if constexpr (std::is_same_v<typename Kind::Sum, float>) {
    if (p.has_blocks())
      return with_loader(p.b_blocks, [&](auto loader) HWY_ATTR {
        few_rows_by_blocks<Kind, typename decltype(loader)::Type, without_two(M), M == 1 ? 2 : 1>(p, first, last);
      });
  }
  if constexpr (std::is_same_v<Kind, Plain<float>>) {
    if (cut.transposed && p.b_element == Element::bf16)
      return transposed_part<Widened<Element::bf16>, M>(p, first, last, far);
    if (cut.transposed && p.b_element == Element::f16)
      return transposed_part<Widened<Element::f16>, M>(p, first, last, far);
  }
  if constexpr (sizeof(typename Kind::Word) == 4) {
    if (cut.transposed) return transposed_part<Kind, M>(p, first, last, far);
  }
  multiply_few_rows<Kind, without_two(M)>(p, first, last, static_cast<typename Kind::Sum*>(scratch));
}

template <class Kind>
using FewRowsFunction = void (*)(const GemmProblem&, std::int64_t, void*);

template <class Kind>
FewRowsFunction<Kind> few_rows_part_of(std::int64_t rows) {
  if constexpr (computed_rows<Kind>(2) == 2) {
    if (computed_rows<Kind>(rows) == 2) return few_rows_part<Kind, 2>;
  }
  if constexpr (computed_rows<Kind>(4) == 4) {
    if (computed_rows<Kind>(rows) == 4) return few_rows_part<Kind, 4>;
  }
  return computed_rows<Kind>(rows) == 1 ? few_rows_part<Kind, 1> : few_rows_part<Kind, 8>;
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
