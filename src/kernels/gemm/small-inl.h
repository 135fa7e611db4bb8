// src/kernels/gemm/small-inl.h: products of up to 8 rows: B is read once, from where it is, at the speed of memory.
#if defined(ATTN_GEMM_SMALL_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_GEMM_SMALL_INL_H
#undef ATTN_GEMM_SMALL_INL_H
#else
#define ATTN_GEMM_SMALL_INL_H
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>

#include "kernels/gemm/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
namespace hn = hwy::HWY_NAMESPACE;

/// Rows that are computed for m of them: 1, 2, 4 or 8, of f64 1 or 8. Reading B takes the time, so a kernel for each number of rows would
/// only be code; the rows beyond the last repeat it and are not stored.
template <class Kind>
constexpr int computed_rows(std::int64_t m) {
  return m <= 1 ? 1 : sizeof(typename Kind::Sum) == 8 ? 8 : m <= 2 ? 2 : m <= 4 ? 4 : 8;
}

/// Row i of A, or the last one.
template <class Kind>
HWY_INLINE const typename Kind::Item* row_of_a(const GemmProblem& p, std::int64_t i) {
  return static_cast<const typename Kind::Item*>(p.a) + std::min(i, p.m - 1) * p.a_stride[0];
}
template <class Kind>
HWY_INLINE typename Kind::Word word_at(const typename Kind::Item* items) {
  typename Kind::Word word;
  std::memcpy(&word, items, sizeof word);
  return word;
}

/// Finished sums [M][width] of columns [column, column + columns) into y.
template <class Kind>
void finish_small(const GemmProblem& p, typename Kind::Sum* sums, int rows, int width, std::int64_t column, int columns) {
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

#if HWY_TARGET == HWY_AVX3
/// `words` words (up to 16) of `columns` columns (up to 16) that are runs along k, turned; the rest is 0.
template <class Kind>
HWY_NOINLINE void turn_edge(const typename Kind::Item* from, std::int64_t column_stride, int columns, int words, __m512 (&out)[16]) {
  alignas(64) float square[16][16] = {};
  for (int c = 0; c < columns; ++c)
    for (int w = 0; w < words; ++w) std::memcpy(&square[w][c], from + c * column_stride + w * Kind::depth, sizeof(float));
  for (int w = 0; w < 16; ++w) out[w] = _mm512_load_ps(square[w]);
}

/// Columns [first, last) of B in vectors of 16, GROUPS at a time; their items are runs along k (weights [N, K]). Lanes are
/// columns: 16 columns x 16 words are turned in registers. In memory the walk jumps, so what the next group needs is
/// fetched in the order of addresses (AHEAD: B is too large for the caches, where that would cost). Where columns leave no gaps, one line of 16 is
/// read, for the processor's own prefetch to follow; to read each waits for memory (500 MB: 1.4 times as long on an AMD EPYC of the fourth generation).
template <class Kind, int M, int GROUPS, bool AHEAD>
HWY_NOINLINE void small_turned(const GemmProblem& p, std::int64_t first, std::int64_t last) {
  using Item = typename Kind::Item;
  const typename Kind::D d;
  const std::int64_t stride = p.b_stride[1], stride_bytes = stride * static_cast<std::int64_t>(sizeof(Item));
  const Item* a[M];
  for (int m = 0; m < M; ++m) a[m] = row_of_a<Kind>(p, m);
  const bool side_by_side = stride == p.k;
  const char* const end = reinterpret_cast<const char*>(static_cast<const Item*>(p.b) + (p.n - 1) * stride);
  for (std::int64_t column = first; column < last; column += 16 * GROUPS) {
    const Item* const b = static_cast<const Item*>(p.b) + column * stride;
    const char* fetch = reinterpret_cast<const char*>(b) + 16 * GROUPS * stride_bytes;
    const int groups = static_cast<int>(std::min<std::int64_t>(GROUPS, pieces_of(last - column, 16)));
    alignas(64) float total[M][GROUPS * 16] = {};
    for (std::int64_t k = 0; k < p.k; k += k_block) {
      const int items = static_cast<int>(std::min<std::int64_t>(p.k - k, k_block)), words = items / Kind::depth;
      typename Kind::V sum[M][GROUPS];
      _Pragma("GCC unroll 8") for (int m = 0; m < M; ++m) _Pragma("GCC unroll 2") for (int g = 0; g < GROUPS; ++g) sum[m][g] = hn::Zero(d);
      for (int w = 0; w < words; w += 16) {
        if (AHEAD && fetch + 1024 * GROUPS + 4096 < end) {
          _Pragma("GCC unroll 32") for (int line = 0; line < 16 * GROUPS; ++line)
            _mm_prefetch(fetch + 4096 + 64 * line, _MM_HINT_T1);  // into L2: into L1 it waits for one of the few lines on their way there
          if (side_by_side) static_cast<void>(*static_cast<const volatile char*>(fetch));
          fetch += 1024 * GROUPS;
        }
        _Pragma("GCC unroll 2") for (int g = 0; g < GROUPS; ++g) {
          if (g >= groups) break;
          const Item* from = b + 16 * g * stride + k + w * Kind::depth;
          const int columns = static_cast<int>(std::min<std::int64_t>(16, p.n - column - 16 * g)), count = std::min(16, words - w);
          __m512 x[16];
          if (columns == 16 && count == 16) {
            if (AHEAD) {
              turn_words(reinterpret_cast<const char*>(from), stride_bytes, x);
            } else {
              turn_cached_words(reinterpret_cast<const char*>(from), stride_bytes, x);
            }
            _Pragma("GCC unroll 16") for (int i = 0; i < 16; ++i) {
              _Pragma("GCC unroll 8") for (int m = 0; m < M; ++m)
                sum[m][g] = Kind::step(hn::Set(d, word_at<Kind>(a[m] + k + (w + i) * Kind::depth)), typename Kind::V{x[i]}, sum[m][g]);
            }
          } else {
            turn_edge<Kind>(from, stride, columns, count, x);
            for (int i = 0; i < count; ++i)
              _Pragma("GCC unroll 8") for (int m = 0; m < M; ++m)
                sum[m][g] = Kind::step(hn::Set(d, word_at<Kind>(a[m] + k + (w + i) * Kind::depth)), typename Kind::V{x[i]}, sum[m][g]);
          }
        }
      }
      if (items % Kind::depth != 0) {  // an odd last item, paired with 0
        _Pragma("GCC unroll 2") for (int g = 0; g < GROUPS; ++g) {
          alignas(64) float x[16] = {};
          for (std::int64_t c = 0; c < std::min<std::int64_t>(16, p.n - column - 16 * g); ++c) x[c] = Kind::word(b + (16 * g + c) * stride + p.k - 1, nullptr);
          _Pragma("GCC unroll 8") for (int m = 0; m < M; ++m)
            sum[m][g] = Kind::step(hn::Set(d, Kind::word(a[m] + p.k - 1, nullptr)), hn::Load(d, x), sum[m][g]);
        }
      }
      _Pragma("GCC unroll 8") for (int m = 0; m < M; ++m) {
        _Pragma("GCC unroll 2") for (int g = 0; g < GROUPS; ++g) hn::Store(hn::Add(hn::Load(d, total[m] + 16 * g), sum[m][g]), d, total[m] + 16 * g);
      }
    }
    finish_small<Kind>(p, total[0], static_cast<int>(p.m), GROUPS * 16, column, static_cast<int>(std::min<std::int64_t>(16 * GROUPS, last - column)));
  }
}
#endif

/// Columns [first, last) of a B whose rows are runs of columns: 8 words of k at a time across all columns of the part; sums
/// [M][width] wait in `scratch`, then totals of the same size.
template <class Kind, int M>
HWY_NOINLINE void small_rows(const GemmProblem& p, std::int64_t first, std::int64_t last, typename Kind::Sum* scratch) {
  using Item = typename Kind::Item;
  using Sum = typename Kind::Sum;
  const typename Kind::D d;
  constexpr int N = static_cast<int>(HWY_LANES(Sum)), steps = 8;
  const std::int64_t stride = p.b_stride[0];
  const int columns = static_cast<int>(last - first), width = static_cast<int>(pieces_of(columns, N)) * N;
  Sum* const sums = scratch;
  Sum* const totals = scratch + M * width;
  std::fill(totals, totals + M * width, Sum{0});
  for (std::int64_t k = 0; k < p.k; k += k_block) {
    const std::int64_t block_end = std::min<std::int64_t>(p.k, k + k_block);
    std::fill(sums, sums + M * width, Sum{0});
    for (std::int64_t at = k; at < block_end; at += steps * Kind::depth) {
      const int items = static_cast<int>(std::min<std::int64_t>(block_end - at, steps * Kind::depth)), words = static_cast<int>(pieces_of(items, Kind::depth));
      typename Kind::Word a[M][steps];
      for (int m = 0; m < M; ++m)
        for (int w = 0; w < words; ++w) {
          const Item* item = row_of_a<Kind>(p, m) + at + w * Kind::depth;
          a[m][w] = Kind::word(item, (w + 1) * Kind::depth <= items ? item + 1 : nullptr);
        }
      const Item* const b = static_cast<const Item*>(p.b) + at * stride + first;
      const auto row_words = [&](int c, int w) HWY_ATTR {
        const Item* one = b + w * Kind::depth * stride + c;
        const Item* two = Kind::depth == 2 && (w + 1) * Kind::depth <= items ? one + stride : nullptr;
        if (c + N <= columns) return Kind::words(one, two);
        alignas(64) typename Kind::Word edge[N] = {};
        for (int i = 0; c + i < columns; ++i) edge[i] = Kind::word(one + i, two ? two + i : nullptr);
        return hn::Load(d, edge);
      };
      for (int c = 0; c < width; c += N) {
        typename Kind::V sum[M];
        _Pragma("GCC unroll 8") for (int m = 0; m < M; ++m) sum[m] = hn::Load(d, sums + m * width + c);
        if (items == steps * Kind::depth && c + N <= columns) {
          _Pragma("GCC unroll 8") for (int w = 0; w < steps; ++w) {
            const Item* one = b + w * Kind::depth * stride + c;
            const auto x = Kind::words(one, one + stride);
            _Pragma("GCC unroll 2") for (int r = 0; r < Kind::depth; ++r) hwy::Prefetch(one + (steps * Kind::depth + r) * stride);
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
    for (int c = 0; c < M * width; c += N) hn::Store(hn::Add(hn::Load(d, totals + c), hn::Load(d, sums + c)), d, totals + c);
  }
  finish_small<Kind>(p, totals, static_cast<int>(p.m), width, first, columns);
}

/// How a product of few rows is cut: columns into parts, a multiple of 32 each.
template <class Kind>
struct SmallCut {
  static constexpr std::int64_t unit = 32;
  const GemmProblem& p;
  std::int64_t units = pieces_of(p.n, unit);
  std::int64_t bytes = p.n * p.k * static_cast<std::int64_t>(sizeof(typename Kind::Item));
  bool turned = p.b_stride[0] == 1 && p.b_stride[1] != 1;
  std::int64_t parts = std::max<std::int64_t>(1, std::min(turned ? units : parts_of_rows(), std::min<std::int64_t>(bytes / small_part_bytes, most_small_parts)));

  explicit SmallCut(const GemmProblem& problem) : p(problem) {}
  /// Wide parts, whose runs of a row the processor's own prefetch sees, as many for each thread, but none of less than 128 columns.
  std::int64_t parts_of_rows() const { return std::min(pieces_of(units, 4), pieces_of(pieces_of(units, small_run_units), p.threads) * p.threads); }
  /// B along its columns for every kind; along k where words of 4 bytes are turned in registers.
  static bool takes(const GemmProblem& p) {
    if (p.m > small_rows_most || (p.a_stride[1] != 1 && p.k > 1)) return false;
    const bool turned = p.b_stride[0] == 1 && p.b_stride[1] != 1;
    return turned ? HWY_TARGET == HWY_AVX3 && sizeof(typename Kind::Word) == 4 : p.b_stride[1] == 1;
  }
  std::int64_t column(std::int64_t part) const { return std::min(p.n, even_cut(units, parts, part) * unit); }
  std::size_t scratch_bytes() const {
    return turned ? 0 : 2 * sizeof(typename Kind::Sum) * static_cast<std::size_t>(computed_rows<Kind>(p.m) * pieces_of(units, parts) * unit);
  }
};

template <class Kind, int M>
void small_part(const GemmProblem& p, std::int64_t part, void* scratch) {
  const SmallCut<Kind> cut(p);
  const std::int64_t first = cut.column(part), last = cut.column(part + 1);
#if HWY_TARGET == HWY_AVX3
  if constexpr (sizeof(typename Kind::Word) == 4) {
    if (cut.turned && cut.bytes > small_cached_bytes) return small_turned<Kind, M, 1, true>(p, first, last);
    if (cut.turned) return small_turned<Kind, M, M <= 4 ? 2 : 1, false>(p, first, last);
  }
#endif
  small_rows<Kind, M>(p, first, last, static_cast<typename Kind::Sum*>(scratch));
}

template <class Kind>
using SmallFunction = void (*)(const GemmProblem&, std::int64_t, void*);

template <class Kind>
SmallFunction<Kind> small_part_of(std::int64_t rows) {
  if constexpr (computed_rows<Kind>(2) == 2) {
    if (computed_rows<Kind>(rows) == 2) return small_part<Kind, 2>;
    if (computed_rows<Kind>(rows) == 4) return small_part<Kind, 4>;
  }
  return computed_rows<Kind>(rows) == 1 ? small_part<Kind, 1> : small_part<Kind, 8>;
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
