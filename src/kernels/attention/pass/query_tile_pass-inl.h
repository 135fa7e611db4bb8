// src/kernels/attention/pass/query_tile_pass-inl.h: holds the state that all forward passes of a query tile share:
// maximum, sum and output of a split (1,024 keys), and their merging into totals.
#if defined(ATTN_QUERY_TILE_PASS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_QUERY_TILE_PASS_INL_H
#undef ATTN_QUERY_TILE_PASS_INL_H
#else
#define ATTN_QUERY_TILE_PASS_INL_H
#endif

#include "kernels/simd/widen-inl.h"
#include "kernels/attention/kv_rows.h"
#include "kernels/attention/mask/masked_values.h"
#include "kernels/attention/next_rows.h"
#include "kernels/attention/score/modifiers-inl.h"
#include "kernels/attention/softmax/online_softmax-inl.h"
#include "kernels/attention/softmax/output_accumulator-inl.h"
#include "kernels/attention/softmax/returned_weights-inl.h"
#include "kernels/simd/transpose-inl.h"

#include <algorithm>
#include <cstring>
#include <utility>

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// What the lanes hold. prefill: query rows, in scores, weights and output; decode: keys in scores, then columns of V.
enum class Path { prefill, decode };

/// Returns the path of a query tile: decode if it has at most 8 rows, which fit in a vector, and V has at least a
/// vector of columns. Additive scores are always computed with rows in the lanes.
template <typename T>
Path path_of(const AttentionProblem& p, const Task& tile) {
  return p.score == ScoreOp::dot && DecodeOutput<T>::takes(tile.count(), p.value_dim) ? Path::decode : Path::prefill;
}

/// The memory of a query tile. `q_dim`: columns of scratch.q; 0 if the pass keeps its queries elsewhere.
template <typename T>
struct QueryTileMemory {
  QueryTileScratch<T> scratch;
  T* score_mod;  // the values of the score expression

  QueryTileMemory(Arena& arena, const AttentionProblem& p, std::int64_t q_dim)
      : scratch(arena, q_dim, p.value_dim), score_mod(arena.take<T>(ScoreVectors<T>::elements(p))) {}
};

template <typename T>
class QueryTilePass {
 public:
  static constexpr int R = query_tile_rows<T>, N = lanes<T>;
  static_assert(R / N <= most_vectors);
  using Compute = T;

  const AttentionProblem& problem;
  Task tile;
  Path path;
  QueryTileScratch<T> scratch;
  ScoreVectors<T> score_mod;
  ReturnedWeights<T> returned_weights;
  int vectors;
  KvRows k, v;
  bool fresh = true;       // no key was accumulated into the split yet
  bool any_split = false;  // a split was merged
  std::int64_t split_end = 0;
  std::int64_t kv_end = 0;     // end of the splits that are processed one after the other
  TilePrefetch prefetch;       // what the register tiles of a block, or the code between them, prefetch
  std::int64_t next_keys = 0;  // the keys over which prefetching for the next query tile is spread
  DecodeOutput<T> rows_out;    // the output of decode

  int rows() const { return static_cast<int>(tile.count()); }

  HWY_NOINLINE void begin_split(std::int64_t end) {
    split_end = end;
    const Tag<T> d;
    for (int x = 0; x < vectors; ++x) {
      hn::Store(minus_infinity<T>(), d, scratch.m + x * N);
      hn::Store(hn::Zero(d), d, scratch.l + x * N);
    }
    fresh = true;
  }

  /// `output` returns the output of the current split, `total` that of the earlier splits.
  OutputAccumulator<T> output() const {
    return output_shape().beside(path == Path::decode ? rows_out.memory() : scratch.o, R);
  }
  OutputAccumulator<T> total() const { return output_shape().beside(scratch.o_total, R); }
  OutputAccumulator<T> output_shape() const {
    if (path == Path::decode) return OutputAccumulator<T>::of_rows(nullptr, problem.value_dim, rows());
    return OutputAccumulator<T>::of_lanes(nullptr, problem.value_dim, R, vectors);
  }

  /// Resets the totals: maximum -inf, sum and output 0.
  HWY_NOINLINE void clear_totals() {
    const Tag<T> d;
    for (int x = 0; x < vectors; ++x) {
      hn::Store(minus_infinity<T>(), d, scratch.m_total + x * N);
      hn::Store(hn::Zero(d), d, scratch.l_total + x * N);
    }
    total().clear();
  }

  /// Reads the totals over earlier keys.
  HWY_NOINLINE void load_totals() {
    if (problem.totals.begins) return;
    clear_totals();
    any_split = true;
    each_row_of_totals([&](std::int64_t lane, std::int64_t count, std::int64_t row) HWY_ATTR {
      const auto bytes = static_cast<std::size_t>(count) * sizeof(T);
      std::memcpy(scratch.m_total + lane, static_cast<const T*>(problem.totals.max) + row, bytes);
      std::memcpy(scratch.l_total + lane, static_cast<const T*>(problem.totals.sum) + row, bytes);
      const T* const o = static_cast<const T*>(problem.totals.output) + row * problem.value_dim;
      if (path == Path::prefill)
        return transpose(o, problem.value_dim, count, problem.value_dim, scratch.o_total + lane, std::int64_t{R});
      each_decode_vector(count, [&](std::int64_t i, std::int64_t vector, std::int64_t column, std::size_t columns) {
        std::memcpy(total().line(static_cast<int>(lane + i)) + vector * N, o + i * problem.value_dim + column, columns);
      });
    });
  }
  /// Writes the totals to memory, NaN as the canonical one.
  HWY_NOINLINE void store_totals() {
    each_row_of_totals([&](std::int64_t lane, std::int64_t count, std::int64_t row) HWY_ATTR {
      const auto bytes = static_cast<std::size_t>(count) * sizeof(T);
      T *const m = static_cast<T*>(problem.totals.max) + row, *const l = static_cast<T*>(problem.totals.sum) + row;
      std::memcpy(m, scratch.m_total + lane, bytes);
      std::memcpy(l, scratch.l_total + lane, bytes);
      T* const o = static_cast<T*>(problem.totals.output) + row * problem.value_dim;
      if (path == Path::prefill)
        transpose(scratch.o_total + lane, std::int64_t{R}, problem.value_dim, count, o, problem.value_dim);
      else
        each_decode_vector(count, [&](std::int64_t i, std::int64_t vector, std::int64_t column, std::size_t columns) {
          std::memcpy(o + i * problem.value_dim + column, total().line(static_cast<int>(lane + i)) + vector * N,
                      columns);
        });
      const auto settle = [](T* x, std::int64_t n) {
        for (std::int64_t i = 0; i < n; ++i) x[i] = canonical(x[i]);
      };
      settle(m, count), settle(l, count), settle(o, count * problem.value_dim);
    });
  }
  /// Returns whether no total of a row is NaN.
  HWY_NOINLINE bool totals_are_numbers() const {
    for (std::int64_t i = 0; i < tile.count(); ++i)
      if (scratch.l_total[i] != scratch.l_total[i]) return false;
    return total().are_numbers(tile.count());
  }

  /// Merges the split's m, l and o into the totals; the first split that is not fully masked becomes the total.
  HWY_NOINLINE void merge_split() {
    if (fresh) return;
    if (any_split) return merge(scratch.m, scratch.l, output());
    const Tag<T> d;
    for (int x = 0; x < vectors; ++x) {
      hn::Store(hn::Load(d, scratch.m + x * N), d, scratch.m_total + x * N);
      hn::Store(hn::Load(d, scratch.l + x * N), d, scratch.l_total + x * N);
    }
    any_split = true;
    if (path == Path::decode) output().copy_to(total());
    else std::swap(scratch.o, scratch.o_total);
  }

  /// Merges the results of a split into the totals.
  HWY_NOINLINE void merge(const T* m_split, const T* l_split, const OutputAccumulator<T>& o_split) {
    const Tag<T> d;
    T *const own = scratch.alpha, *const of_split = scratch.sum;  // factors; no block needs this memory now
    for (int x = 0; x < vectors; ++x) {
      const auto m = hn::Load(d, scratch.m_total + x * N), other = hn::Load(d, m_split + x * N);
      const auto maximum = hn::Max(m, other);
      const auto reference = safe_reference<T>(maximum);
      const auto a = weight_of<T>(m, reference), s = weight_of<T>(other, reference);
      hn::Store(maximum, d, scratch.m_total + x * N);
      const auto l = hn::MulAdd(hn::Load(d, scratch.l_total + x * N), a, hn::Mul(hn::Load(d, l_split + x * N), s));
      hn::Store(l, d, scratch.l_total + x * N);
      hn::Store(a, d, own + x * N);
      hn::Store(s, d, of_split + x * N);
    }
    total().merge(own, o_split, of_split);
  }

 protected:
  /// `bytes`: the size of an element of K and V; 0 if they are converted, and then none is prefetched for the next
  /// query tile. `v_columns`: the elements of a row of V that decode may read.
  HWY_NOINLINE QueryTilePass(const AttentionProblem& p, const Task& query_tile, Path its_path,
                             const QueryTileMemory<T>& memory, std::int64_t bytes, std::int64_t v_columns)
      : problem(p), tile(query_tile), path(its_path), scratch(memory.scratch), score_mod(p, tile, memory.score_mod),
        returned_weights(p, query_tile), vectors(static_cast<int>((tile.count() + N - 1) / N)),
        k(rows_of_head(p.k, p.k_stride, tile.batch, p.key_head(tile.head))),
        v(rows_of_head(p.v, p.v_stride, tile.batch, p.value_head(tile.head))), rows_out(scratch.block, v_columns) {
    if (bytes > 0) next_keys = add_next_tile({prefetch.later, bytes}, problem, tile, R);
  }

  /// Calls visit(first lane, lanes, first row) for the rows of each head, as AttentionProblem::totals has them.
  template <class F>
  void each_row_of_totals(F&& visit) const {
    for (std::int64_t n = 0; n < tile.heads; ++n)
      visit(n * tile.rows, tile.rows, (tile.batch * problem.q_heads + tile.head + n) * problem.q_rows + tile.row);
  }
  /// Calls visit(row, vector, its first column, bytes of its columns) for the vectors of decode rows.
  template <class F>
  void each_decode_vector(std::int64_t count, F&& visit) const {
    for (std::int64_t i = 0; i < count; ++i)
      for (std::int64_t v = 0; v < rows_out.vectors(); ++v) {
        const std::int64_t column = rows_out.column_of(v), left = problem.value_dim - column;
        if (left > 0) visit(i, v, column, static_cast<std::size_t>(left < N ? left : N) * sizeof(T));
      }
  }

  /// Transposes Q to [columns][width].
  HWY_NOINLINE void transpose_queries(T* q, std::int64_t width) {
    tile.for_each_piece(problem.q_stride, [&](std::int64_t first, std::int64_t count, std::int64_t start,
                                              std::int64_t stride) HWY_ATTR {
      if (bytes_of(problem.element) == sizeof(T))
        transpose(static_cast<const T*>(problem.q) + start, stride, count, problem.dim, q + first, width);
      else if constexpr (sizeof(T) == 4)
        transpose_widened(static_cast<const std::uint16_t*>(problem.q) + start, stride, count, q + first, width);
    });
  }
  /// Transposes queries of bf16 or f16. As many columns of every row are converted at a time as the memory of the
  /// scores holds.
  void transpose_widened(const std::uint16_t* q, std::int64_t stride, std::int64_t count, T* to, std::int64_t width) {
    constexpr std::int64_t most = kv_block;
    for (std::int64_t c = 0, columns; c < problem.dim; c += columns) {
      columns = problem.dim - c < most ? problem.dim - c : most;
      for (std::int64_t i = 0; i < count; ++i)
        widen_half_row(problem.element, q + i * stride + c, columns, scratch.s + i * most);
      transpose(scratch.s, most, count, columns, to + c * width, width);
    }
  }
  /// Sets the first vector of each of `count` rows of lanes to 0.
  static void clear_vector(T* lines, std::int64_t count) {
    const Tag<T> d;
    for (std::int64_t n = 0; n < count; ++n) hn::Store(hn::Zero(d), d, lines + n * R);
  }

  /// Spreads what is prefetched for the next query tile over `times` points in each block of `keys` keys.
  void spread_next(std::int64_t times, std::int64_t keys) {
    prefetch.begin(times, std::max(next_keys / keys, std::int64_t{1}));
  }

  /// Sets the weights of a vector to 0 for those keys between its first and its last in which it takes no part.
  /// `keys_of_row`: keys in a row of weights, 2 if they are pairs.
  template <typename P>
  void clear_gaps(const ActiveRanges& ranges, P* weights, int keys_of_row) {
    for (int g = 0; g < ranges.count; ++g)
      for (int x = 0; x < vectors; ++x) {
        if (x >= ranges.first[g] && x < ranges.last[g]) continue;
        const int begin = ranges.key[g] > ranges.begin[x] ? ranges.key[g] : ranges.begin[x];
        const int end = ranges.key[g + 1] < ranges.end[x] ? ranges.key[g + 1] : ranges.end[x];
        for (int r = begin / keys_of_row; r * keys_of_row < end; ++r)
          std::memset(weights + r * R + x * N, 0, N * sizeof(P));
      }
  }

  /// Prefill: computes o = fma(o, alpha, the block's chain) by chain(first key, end, first vector, last), which is
  /// called once for the vectors that take part in the same keys.
  template <class F>
  void accumulate_ranges(const ActiveRanges& ranges, F&& chain) {
    for (int x = 0, last; x < vectors; x = last) {
      last = ranges.same_range(x, vectors);
      if (ranges.begin[x] == ranges.end[x]) {
        if (fresh)
          for (int n = x; n < last; ++n) clear_vector(scratch.o + n * N, problem.value_dim);
      } else {
        chain(ranges.begin[x], ranges.end[x], x, last);
      }
    }
    fresh = false;
  }
};

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
