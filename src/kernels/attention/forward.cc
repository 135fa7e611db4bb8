// src/kernels/attention/forward.cc: computes the forward pass of query tiles, whole or split over keys; compiled once
// for every instruction set.
#include "kernels/attention/dispatch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/forward.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/attention/pass/amx_forward_pass-inl.h"
#include "kernels/attention/pass/forward_pass-inl.h"
#include "kernels/attention/softmax/epilogue-inl.h"
#include "kernels/attention/mask/block_mask-inl.h"
#include "kernels/attention/mask/mask_program.h"
#include "kernels/attention/mask/masked_values.h"
#include "kernels/targets.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// Computes the blocks of keys [first, end), which are in one split.
template <class W>
HWY_NOINLINE void visit_blocks(W& pass, std::int64_t first, std::int64_t end) {
  const QueryTile& tile = pass.tile;
  alignas(64) Word visible[W::block_keys];
  pass.begin_split(end);
  for (; first < end; first += W::block_keys) {
    const int keys = static_cast<int>(end - first < W::block_keys ? end - first : W::block_keys);
    const Visibility visibility = classify(
        pass.problem, tile.batch, {tile.row, tile.row + tile.rows, first, first + keys, tile.head, tile.heads});
    if (visibility == Visibility::full ||
        (visibility == Visibility::partial && block_mask(pass.problem, tile, first, keys, visible))) {
      pass.block(first, keys, visibility == Visibility::full ? nullptr : visible);
    } else if (pass.returned_weights.wanted()) {
      pass.returned_weights.skip(first, keys, pass.vectors);
    }
  }
}

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
  const std::int64_t end = pass.problem.keys_end(pass.tile.batch);
  pass.load_queries();
  pass.load_totals();
  pass.kv_end = end;
  for (std::int64_t first = pass.problem.keys_begin(pass.tile.batch); first < end; first += kv_split) {
    visit_blocks(pass, first, first + kv_split < end ? first + kv_split : end);
    pass.merge_split();
  }
}

/// Calls f(pass) with the pass of the query tile's path.
template <class W, class F>
auto with_pass(const AttentionProblem& problem, const QueryTile& tile, void* memory, F&& f) {
  using Decode = typename W::Decode;
  if (W::path_of(problem, tile) == Path::decode) {
    Decode pass(problem, tile, memory);
    return f(static_cast<typename Decode::Blocks&>(pass));
  }
  W pass(problem, tile, memory);
  return f(static_cast<typename W::Blocks&>(pass));
}

template <class W>
bool attend_query_tile(const AttentionProblem& problem, const QueryTile& tile, void* memory) {
  return with_pass<W>(problem, tile, memory, [](auto& pass) {
    visit_splits(pass);
    return finish(pass);
  });
}

/// Computes the query tiles of a task, the last one first, because under a causal mask it sees the most keys.
template <class W>
bool attend(const AttentionProblem& problem, const QueryTile& tile, void* memory) {
  constexpr std::int64_t R = W::R;
  W::begin_task(problem, tile.rows, memory);
  if (tile.heads > 1) return attend_query_tile<W>(problem, tile, memory);
  bool numbers = true;
  for (std::int64_t row = (tile.rows - 1) / R * R; row >= 0; row -= R) {
    const std::int64_t rows = tile.rows - row < R ? tile.rows - row : R;
    numbers &= attend_query_tile<W>(problem, {tile.batch, tile.head, 1, tile.row + row, rows}, memory);
  }
  return numbers;
}

template <typename T>
std::size_t partial_bytes(const AttentionProblem& problem, const QueryTile& tile) {
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
void attend_splits(const AttentionProblem& problem, const QueryTile& tile, std::int64_t first, std::int64_t last,
                   void* partials, void* memory) {
  using T = typename W::Compute;
  W::begin_task(problem, tile.rows, memory);
  with_pass<W>(problem, tile, memory, [&](auto& pass) {
    const Partial<T> partial{pass};
    std::int64_t at = problem.keys_begin(tile.batch) + first * kv_split;
    const std::int64_t end = std::min(at + (last - first) * kv_split, problem.keys_end(tile.batch));
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
bool attend_merge(const AttentionProblem& problem, const QueryTile& tile, const void* partials, std::int64_t splits,
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

/// Transposes the weights of a query tile to rows of memory.
template <typename T>
void transpose_weights(const void* lanes, std::int64_t keys, std::int64_t rows, void* to, std::int64_t stride) {
  transpose(static_cast<const T*>(lanes), std::int64_t{query_tile_rows<T>}, keys, rows, static_cast<T*>(to), stride);
}

/// Joins two passes to one kernel: the call's score chooses the pass. Merging does not depend on the score.
template <class Dot, class Additive>
struct ByScore {
  static bool additive(const AttentionProblem& problem) { return problem.score == ScoreOp::additive; }
  static std::size_t scratch_bytes(const AttentionProblem& problem) {
    return (additive(problem) ? Additive::scratch_bytes : Dot::scratch_bytes)(problem);
  }
  static bool whole(const AttentionProblem& problem, const QueryTile& tile, void* memory) {
    return (additive(problem) ? attend<Additive> : attend<Dot>)(problem, tile, memory);
  }
  static void splits(const AttentionProblem& problem, const QueryTile& tile, std::int64_t first, std::int64_t last,
                     void* partials, void* memory) {
    (additive(problem) ? attend_splits<Additive> : attend_splits<Dot>)(problem, tile, first, last, partials, memory);
  }
  static constexpr ForwardKernel kernel() {
    using T = typename Dot::Compute;
    return {query_tile_rows<T>, 1,       scratch_bytes,       partial_bytes<T>, whole, splits,
            attend_merge<Dot>,  nullptr, transpose_weights<T>};
  }
};
template <typename T>
constexpr ForwardKernel forward_kernel() {
  return ByScore<ForwardPass<T>, ForwardPass<T, AdditiveScore<T>>>::kernel();
}

#if HWY_TARGET == HWY_AVX3
/// Computes one row after the other, with the values of masked keys as 0 (masked_values.h).
template <class W>
void bf16_nan_safe_rows(const AttentionProblem& problem, const QueryTile& tile, void* memory) {
  for (std::int64_t n = 0; n < tile.heads; ++n)
    for (std::int64_t i = 0; i < tile.rows; ++i) {
      W::begin_task(problem, 1, memory);
      W pass(problem, {tile.batch, tile.head + n, 1, tile.row + i, 1}, memory);
      pass.masked.leave_out();
      pass.returned_weights.only(static_cast<int>(n * tile.rows + i));
      visit_splits<Bf16ForwardPass>(pass);
      finish<float>(pass, IfNan::write);
    }
}
constexpr ForwardKernel bf16_forward_kernel() {
  ForwardKernel kernel = ByScore<Bf16ForwardPass, Bf16ForwardPass>::kernel();
  kernel.nan_safe_rows = bf16_nan_safe_rows<Bf16ForwardPass>;
  kernel.task_tiles = 16;  // pairs of values are converted once for all of these tiles
  kernel.int8_form = bf16_byte_form;
  return kernel;
}
extern const AttentionTarget amx_table;
constexpr ForwardKernel amx_forward_kernel() {
  ForwardKernel kernel = bf16_forward_kernel();
  kernel.attend = attend<AmxForwardPass>;
  kernel.attend_splits = attend_splits<AmxForwardPass>;
  kernel.attend_merge = attend_merge<AmxMergePass>;
  kernel.nan_safe_rows = bf16_nan_safe_rows<AmxForwardPass>;
  kernel.int8_form = nullptr;
  return kernel;
}
const AttentionTarget amx_table = {"amx", forward_kernel<float>(), forward_kernel<double>(), amx_forward_kernel()};
#else
constexpr ForwardKernel bf16_forward_kernel() { return {}; }
#endif

extern const AttentionTarget attention_table;
const AttentionTarget attention_table = {ATTN_TARGET_NAME, forward_kernel<float>(), forward_kernel<double>(),
                                         bf16_forward_kernel()};

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#if defined(__x86_64__) && (HWY_TARGETS & ~(HWY_EMU128 | HWY_SCALAR)) != (HWY_AVX3 | HWY_AVX2)
#error "AVX-512 and AVX2 must be built, whatever the user's flags, and nothing beside them (src/CMakeLists.txt)"
#endif
#if defined(__aarch64__) && !(HWY_TARGETS & HWY_NEON)
#error "NEON must be built (src/CMakeLists.txt)"
#endif
namespace attn::kernels {

const AttentionTarget* attention_target(const char* name) noexcept {
  return find_table<AttentionTarget>({ATTN_AMX_TABLE(amx_table) ATTN_TABLES(attention_table)}, name);
}

}  // namespace attn::kernels
#endif
