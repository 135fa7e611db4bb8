// src/kernels/gemm/small-inl.h: computes products of up to 8 rows: B is read once, in place, at memory bandwidth.
#if defined(ATTN_GEMM_SMALL_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_GEMM_SMALL_INL_H
#undef ATTN_GEMM_SMALL_INL_H
#else
#define ATTN_GEMM_SMALL_INL_H
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <type_traits>

#include "kernels/prefetch/prefetch.h"
#include "kernels/gemm/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
namespace hn = hwy::HWY_NAMESPACE;

/// Returns the number of rows that a kernel computes for m rows: 1, 4 or 8, for f64 1 or 8; 2 if B's columns are
/// transposed on AVX-512 and B exceeds the caches. Reading B takes most of the time, so a kernel for each number of
/// rows would only add code; the extra rows repeat the last one and are not stored.
template <class Kind>
constexpr int computed_rows(std::int64_t m) {
  if (m <= 1) return 1;
  if (sizeof(typename Kind::Sum) == 8 || m > 4) return 8;
  return m == 2 && HWY_TARGET == HWY_AVX3 ? 2 : 4;
}
constexpr int without_two(int rows) { return rows == 2 ? 4 : rows; }

/// Returns row i of A, or the last row.
template <class Kind>
HWY_INLINE const typename Kind::Left* row_of_a(const GemmProblem& p, std::int64_t i) {
  return static_cast<const typename Kind::Left*>(p.a) + std::min(i, p.m - 1) * p.a_stride[0];
}

/// Writes finished sums [M][width] of columns [column, column + columns) to y.
template <class Kind>
void finish_small(const GemmProblem& p, typename Kind::Sum* sums, int rows, int width, std::int64_t column,
                  int columns) {
  using Sum = typename Kind::Sum;
  const Sum* bias = static_cast<const Sum*>(p.bias);
  for (int i = 0; i < rows; ++i)
    for (int c = 0; c < columns; ++c) {
      Sum& value = sums[i * width + c];
      if (bias) value += bias[column + c];
      if (value != value) value = std::numeric_limits<Sum>::quiet_NaN();
    }
  void* y = p.narrow ? static_cast<void*>(static_cast<std::uint16_t*>(p.y) + column) : static_cast<Sum*>(p.y) + column;
  finish_rows(p.activation, p.narrow, sums, rows, width, columns, y, p.y_stride[0]);
}

/// The lines of B in the order of addresses, to be prefetched some KB before they are used.
class LinesInOrder {
 public:
  LinesInOrder(const char* at, const char* end, bool side_by_side) : at_(at), end_(end), side_by_side_(side_by_side) {}
  /// Returns the next LINES lines to prefetch; near the end returns `otherwise`, lines that are already cached.
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

/// Words that are transposed in registers at a time.
inline constexpr int transposed_words = HWY_TARGET == HWY_AVX3 ? 16 : 4;

/// Loads `words` words (up to transposed_words) of `columns` columns (up to a vector) that are contiguous along k,
/// transposed; missing ones are 0.
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

/// Loads transposed_words words of a vector of columns, transposed. CACHED: in the way that is faster for columns in
/// the caches.
template <class Kind, bool CACHED>
HWY_INLINE void transpose_columns(const char* from, std::int64_t column_bytes,
                                  typename Kind::V (&out)[transposed_words]) {
#if HWY_TARGET == HWY_AVX3
  __m512 x[16];
  CACHED ? transpose_cached_words(from, column_bytes, x) : transpose_words(from, column_bytes, x);
  _Pragma("GCC unroll 16") for (int i = 0; i < 16; ++i) out[i] = typename Kind::V{x[i]};
#else
  const typename Kind::D d;
  RowsInStep<typename Kind::D>(reinterpret_cast<const float*>(from),
                               column_bytes / static_cast<std::int64_t>(sizeof(float)))
      .next(d, out);
#endif
}

/// Computes columns [first, last) of a B whose items are contiguous along k (weights [N, K]), GROUPS vectors of columns
/// at a time. Lanes are columns: their words are transposed in registers. The reads jump in memory, so the data of the
/// next group is prefetched in the order of addresses (`far`: B exceeds the caches; otherwise prefetching would only
/// cost time). It is prefetched line by line between the sums, because many prefetches at once delay each other and the
/// next loads (500 MB: 1.17 to 1.2 times as long on a fifth-generation AMD EPYC). If columns have no gaps, one line of
/// 16 is loaded so that the processor's own prefetcher follows; loading each line waits for memory (1.4 times as long
/// on a fourth-generation one).
template <class Kind, int M, int GROUPS, bool CACHED>
HWY_NOINLINE void small_transposed(const GemmProblem& p, std::int64_t first, std::int64_t last, bool far) {
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
            const char* const next = CACHED ? nullptr : far ? ahead.next<lines>(from) : from;
            transpose_columns<Kind, CACHED>(from, stride_bytes, x);
            _Pragma("GCC unroll 16") for (int i = 0; i < transposed_words; ++i) {
              if (!CACHED) prefetch_share<lines>(address_of(next), i, transposed_words);
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
    finish_small<Kind>(p, total[0], static_cast<int>(p.m), width, column, columns);
  }
}

/// Computes columns [first, last) of a B whose rows are contiguous: 8 words of k at a time across all columns of the
/// part. Sums [M][width] are kept in `scratch`, followed by totals of the same size. A 16-bit B is widened first, 64
/// columns at a time.
template <class Kind, int M>
HWY_NOINLINE void small_rows(const GemmProblem& p, std::int64_t first, std::int64_t last, typename Kind::Sum* scratch) {
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
      const Item* b = reinterpret_cast<const Item*>(stored);  // from column b_column on
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
  finish_small<Kind>(p, totals, static_cast<int>(p.m), width, first, columns);
}

/// Splits a product of few rows: columns into parts, each a multiple of 32.
template <class Kind>
struct SmallCut {
  static constexpr std::int64_t unit = 32;
  const GemmProblem& p;
  std::int64_t units = pieces_of(p.n, unit);
  std::int64_t bytes = p.n * p.k * stored_bytes<Kind>(p);
  bool transposed = p.b_stride[0] == 1 && p.b_stride[1] != 1;
  std::int64_t parts =
      std::max<std::int64_t>(1, std::min(transposed ? units : parts_of_rows(),
                                         std::min<std::int64_t>(bytes / small_part_bytes, most_small_parts)));

  explicit SmallCut(const GemmProblem& problem) : p(problem) {}
  /// Returns the number of wide parts, whose long contiguous rows the processor's prefetcher follows: the same number
  /// for each thread, but no part below 128 columns.
  std::int64_t parts_of_rows() const {
    return std::min(pieces_of(units, 4), pieces_of(pieces_of(units, small_run_units), p.threads) * p.threads);
  }
  /// Returns whether the kernel accepts B: contiguous rows for every kind; columns contiguous along k only for words of
  /// 4 bytes, and, where vectors are transposed in pieces, with a stride of whole words.
  static bool takes(const GemmProblem& p) {
    if (p.m > small_rows_most || (p.a_stride[1] != 1 && p.k > 1)) return false;
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

/// GROUPS gives enough chains to hide an FMA's latency, as far as registers allow. `far`: B exceeds the caches. A
/// 16-bit B is always treated so, to save code.
template <class Kind, int M>
void transposed_part(const GemmProblem& p, std::int64_t first, std::int64_t last, bool far) {
  constexpr bool widens = !std::is_same_v<typename Kind::Left, typename Kind::Item>,
                 one_way = widens || HWY_TARGET != HWY_AVX3;
  constexpr int groups = HWY_TARGET == HWY_AVX3 || M > 4 ? 1 : M == 1 ? 4 : 2;
  if (one_way || far) return small_transposed<Kind, widens ? without_two(M) : M, groups, false>(p, first, last, far);
  if constexpr (!one_way) small_transposed<Kind, without_two(M), M <= 4 ? 2 : 1, true>(p, first, last, far);
}

template <class Kind, int M>
void small_part(const GemmProblem& p, std::int64_t part, void* scratch) {
  const SmallCut<Kind> cut(p);
  const std::int64_t first = cut.column(part), last = cut.column(part + 1);
  const bool far = cut.bytes > small_cached_bytes;
  if constexpr (std::is_same_v<Kind, Plain<float>>) {
    if (cut.transposed && p.b_element == Element::bf16)
      return transposed_part<Widened<Element::bf16>, M>(p, first, last, far);
    if (cut.transposed && p.b_element == Element::f16)
      return transposed_part<Widened<Element::f16>, M>(p, first, last, far);
  }
  if constexpr (sizeof(typename Kind::Word) == 4) {
    if (cut.transposed) return transposed_part<Kind, M>(p, first, last, far);
  }
  small_rows<Kind, without_two(M)>(p, first, last, static_cast<typename Kind::Sum*>(scratch));
}

template <class Kind>
using SmallFunction = void (*)(const GemmProblem&, std::int64_t, void*);

template <class Kind>
SmallFunction<Kind> small_part_of(std::int64_t rows) {
  if constexpr (computed_rows<Kind>(2) == 2) {
    if (computed_rows<Kind>(rows) == 2) return small_part<Kind, 2>;
  }
  if constexpr (computed_rows<Kind>(4) == 4) {
    if (computed_rows<Kind>(rows) == 4) return small_part<Kind, 4>;
  }
  return computed_rows<Kind>(rows) == 1 ? small_part<Kind, 1> : small_part<Kind, 8>;
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
