// src/kernels/attention/pass/key_splits-inl.h: computes the splits of 1,024 keys of a query tile, keeps their partial
// results, and merges them in ascending order, whether one task has them all or several have a part each.
#if defined(ATTN_KEY_SPLITS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_KEY_SPLITS_INL_H
#undef ATTN_KEY_SPLITS_INL_H
#else
#define ATTN_KEY_SPLITS_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "kernels/attention/mask/masked_values.h"
#include "kernels/attention/pass/query_tile_pass-inl.h"
#include "kernels/attention/pass/visible_blocks-inl.h"
#include "kernels/attention/softmax/epilogue-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// Adds the sink, divides, and writes the results to memory. Returns false and writes none if one is NaN and the rows
/// must be recomputed.
template <typename T>
HWY_NOINLINE bool finish(QueryTilePass<T>& pass, IfNan if_nan = IfNan::recompute) {
  const AttentionProblem& problem = pass.problem;
  if (!pass.any_split) pass.clear_totals();
  if (!problem.totals.ends) {
    if (!pass.totals_are_numbers() && if_nan == IfNan::recompute) return false;
    pass.store_totals();
    return true;
  }
  const Totals<T> totals{pass.scratch.m_total, pass.scratch.l_total, pass.scratch.sum, pass.total()};
  if (problem.sinks) add_sinks(static_cast<const T*>(problem.sinks), pass.tile, pass.vectors, totals);
  if (!divide(pass.tile.count(), pass.vectors, totals) && if_nan == IfNan::recompute) return false;
  if (pass.returned_weights.wanted())
    pass.returned_weights.make_weights(problem, pass.tile, pass.vectors, totals.m, totals.l, pass.scratch.s);
  write_rows(problem, pass.tile, totals.output, pass.rows_out, pass.scratch.block);
  save_sums(problem, pass.tile, pass.vectors, totals);
  return true;
}

template <class W>
HWY_NOINLINE void visit_splits(W& pass) {
  const std::int64_t end = pass.problem.keys_end(pass.tile);
  pass.load_queries();
  pass.load_totals();
  pass.kv_end = end;
  for (std::int64_t first = pass.problem.keys_begin(pass.tile); first < end; first += kv_split) {
    visit_blocks(pass, first, first + kv_split < end ? first + kv_split : end);
    pass.merge_split();
  }
}

/// Calls f(pass) with the pass of the query tile's path.
template <class W, class F>
auto with_pass(const AttentionProblem& problem, const Task& tile, void* memory, F&& f) {
  using Decode = typename W::Decode;
  if (W::path_of(problem, tile) == Path::decode) {
    Decode pass(problem, tile, memory);
    return f(static_cast<typename Decode::Blocks&>(pass));
  }
  W pass(problem, tile, memory);
  return f(static_cast<typename W::Blocks&>(pass));
}

template <typename T>
std::size_t partial_bytes(const AttentionProblem& problem, const Task& tile) {
  constexpr int N = lanes<T>;
  // decode rows have whole vectors of columns
  const std::int64_t vectors = (tile.count() + N - 1) / N, columns = (problem.value_dim + N - 1) / N * N;
  return sizeof(T) * static_cast<std::size_t>(vectors * N * (columns + 2));
}

/// The layout of a split's partial result: m and l, each in whole vectors, then o.
template <typename T>
struct Partial {
  const QueryTilePass<T>& pass;
  std::int64_t width = pass.vectors * lanes<T>;

  T* m(T* partial) const { return partial; }
  T* l(T* partial) const { return partial + width; }
  OutputAccumulator<T> output(T* partial) const { return pass.output_shape().beside(partial + 2 * width, width); }
  T* next(T* partial) const { return partial + partial_bytes<T>(pass.problem, pass.tile) / sizeof(T); }
};

/// Computes the partial results of splits [first, last), one after the other.
template <class W>
void attend_splits(const AttentionProblem& problem, const Task& tile, std::int64_t first, std::int64_t last,
                   void* partials, void* memory) {
  using T = typename W::Compute;
  W::begin_task(problem, tile.rows, memory);
  with_pass<W>(problem, tile, memory, [&](auto& pass) {
    const Partial<T> partial{pass};
    std::int64_t at = problem.keys_begin(tile) + first * kv_split;
    const std::int64_t end = std::min(at + (last - first) * kv_split, problem.keys_end(tile));
    if (at < end) pass.load_queries();
    pass.kv_end = end;
    const auto bytes = sizeof(T) * static_cast<std::size_t>(partial.width);
    auto* to = static_cast<T*>(partials);
    for (std::int64_t split = first; split < last; ++split, at += kv_split, to = partial.next(to)) {
      visit_blocks(pass, at, std::min(at + kv_split, end));
      std::memcpy(partial.m(to), pass.scratch.m, bytes);
      std::memcpy(partial.l(to), pass.scratch.l, bytes);
      if (pass.fresh) partial.output(to).clear();
      else pass.output().copy_to(partial.output(to));
    }
  });
}

/// Merges the splits' partial results in ascending order and writes the results.
template <class W>
bool attend_merge(const AttentionProblem& problem, const Task& tile, const void* partials, std::int64_t splits,
                  void* memory) {
  using T = typename W::Compute;
  W::begin_task(problem, tile.rows, memory);
  return with_pass<W>(problem, tile, memory, [&](QueryTilePass<T>& pass) {
    const Partial<T> partial{pass};
    pass.clear_totals();
    pass.any_split = true;
    auto* from = const_cast<T*>(static_cast<const T*>(partials));  // the pass only reads them
    for (std::int64_t s = 0; s < splits; ++s, from = partial.next(from))
      pass.merge(partial.m(from), partial.l(from), partial.output(from));
    return finish(pass);
  });
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
