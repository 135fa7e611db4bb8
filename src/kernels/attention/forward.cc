// src/kernels/attention/forward.cc: attention of a strip of rows, whole or span by span, compiled once for every
// instruction set.
#include "kernels/attention/target.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/forward.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/attention/amx_walk-inl.h"
#include "kernels/attention/finish-inl.h"
#include "kernels/attention/look-inl.h"
#include "kernels/attention/mask_eval.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// The blocks of keys [first, end), which lie in one span.
template <class W>
void walk_blocks(W& walk, std::int64_t first, std::int64_t end) {
  const LaneMap& map = walk.map;
  alignas(64) Word visible[W::block_keys];
  walk.begin_span(end);
  for (; first < end; first += W::block_keys) {
    const int keys = static_cast<int>(end - first < W::block_keys ? end - first : W::block_keys);
    const Tile tile = classify(walk.problem, map.batch, {map.row, map.row + map.rows, first, first + keys});
    if (tile == Tile::full || (tile == Tile::partial && look(walk.problem, map, first, keys, visible))) {
      walk.block(first, keys, tile == Tile::full ? nullptr : visible);
    } else if (walk.kept_scores.wanted()) {
      walk.kept_scores.skip(first, keys, walk.vectors);
    }
  }
}

/// What becomes of results that are not a number: given back to the caller, or written.
enum class Nan : bool { refuse, write };

/// Sink, division, results to memory.
template <class W>
bool finish(W& walk, Nan nan = Nan::refuse) {
  using T = typename W::Compute;
  const AttentionProblem& problem = walk.problem;
  if (!walk.any_span) walk.clear_totals();
  const Totals<T> totals{walk.strip.m_total, walk.strip.l_total, walk.strip.sum, walk.total()};
  if (problem.sinks) add_sinks(static_cast<const T*>(problem.sinks), walk.map, walk.vectors, totals);
  if (!divide(walk.map.count(), walk.vectors, totals) && nan == Nan::refuse) return false;
  if (walk.kept_scores.wanted())
    walk.kept_scores.make_weights(problem, walk.map, walk.vectors, totals.m, totals.l, walk.strip.s);
  write_rows(problem, walk.map, totals.output, walk.rows_out, walk.strip.block);
  save_sums(problem, walk.map, walk.vectors, totals);
  return true;
}

template <class W>
void walk_spans(W& walk) {
  const std::int64_t end = walk.problem.keys_end(walk.map.batch);
  walk.load_queries();
  walk.walk_end = end;
  for (std::int64_t first = walk.problem.keys_begin(walk.map.batch); first < end; first += span_keys) {
    walk_blocks(walk, first, first + span_keys < end ? first + span_keys : end);
    walk.merge_span();
  }
}

template <class W>
bool attend_strip(const AttentionProblem& problem, const LaneMap& map, void* scratch) {
  W walk(problem, map, scratch);
  typename W::Blocks& blocks = walk;
  walk_spans(blocks);
  return finish(blocks);
}

/// The strips of a task, the last first: under a causal mask it sees the most keys.
template <class W>
bool attend(const AttentionProblem& problem, const LaneMap& map, void* scratch) {
  constexpr std::int64_t R = W::R;
  W::begin_task(problem, map.rows, scratch);
  if (map.heads > 1) return attend_strip<W>(problem, map, scratch);
  bool numbers = true;
  for (std::int64_t row = (map.rows - 1) / R * R; row >= 0; row -= R) {
    const std::int64_t rows = map.rows - row < R ? map.rows - row : R;
    numbers &= attend_strip<W>(problem, {map.batch, map.head, 1, map.row + row, rows}, scratch);
  }
  return numbers;
}

template <typename T>
std::size_t partial_bytes(const AttentionProblem& problem, const LaneMap& map) {
  constexpr int N = lanes<T>;
  // few rows have whole vectors of them
  const std::int64_t vectors = (map.count() + N - 1) / N, columns = (problem.value_dim + N - 1) / N * N;
  return sizeof(T) * static_cast<std::size_t>(vectors * N * (columns + 2));
}

/// What a span leaves: m, l, as many lanes wide as the strip has vectors, then o.
template <class W>
struct Partial {
  using T = typename W::Compute;
  const W& walk;
  std::int64_t width = walk.vectors * W::N;

  T* m(T* partial) const { return partial; }
  T* l(T* partial) const { return partial + width; }
  StripOutput<T> output(T* partial) const { return walk.output_shape().beside(partial + 2 * width, width); }
  T* next(T* partial) const { return partial + partial_bytes<T>(walk.problem, walk.map) / sizeof(T); }
};

/// The partial results of spans [first, last), one after the other.
template <class W>
void attend_spans(const AttentionProblem& problem, const LaneMap& map, std::int64_t first, std::int64_t last,
                  void* partials, void* scratch) {
  using T = typename W::Compute;
  W::begin_task(problem, map.rows, scratch);
  W walk(problem, map, scratch);
  const Partial<W> partial{walk};
  std::int64_t at = problem.keys_begin(map.batch) + first * span_keys;
  const std::int64_t end = std::min(at + (last - first) * span_keys, problem.keys_end(map.batch));
  if (at < end) walk.load_queries();
  walk.walk_end = end;
  const auto bytes = sizeof(T) * static_cast<std::size_t>(partial.width);
  for (auto* to = static_cast<T*>(partials); first < last; ++first, at += span_keys, to = partial.next(to)) {
    walk_blocks<typename W::Blocks>(walk, at, std::min(at + span_keys, end));
    std::memcpy(partial.m(to), walk.strip.m, bytes);
    std::memcpy(partial.l(to), walk.strip.l, bytes);
    if (walk.fresh) partial.output(to).clear();
    else walk.output().copy_to(partial.output(to));
  }
}

/// The spans' partial results merged left to right and finished.
template <class W>
bool attend_merge(const AttentionProblem& problem, const LaneMap& map, const void* partials, std::int64_t spans,
                  void* scratch) {
  using T = typename W::Compute;
  W walk(problem, map, scratch);
  const Partial<W> partial{walk};
  walk.clear_totals();
  walk.any_span = true;
  auto* from = const_cast<T*>(static_cast<const T*>(partials));  // only read
  for (std::int64_t s = 0; s < spans; ++s, from = partial.next(from))
    walk.merge(partial.m(from), partial.l(from), partial.output(from));
  return finish(walk);
}

/// The weights of a strip to rows of memory.
template <typename T>
void turn_lanes(const void* lanes, std::int64_t keys, std::int64_t rows, void* to, std::int64_t stride) {
  turn(static_cast<const T*>(lanes), std::int64_t{strip_rows<T>}, keys, rows, static_cast<T*>(to), stride);
}

/// One kernel of two walks: the call's score says which. Merging does not see scores.
template <class Dot, class Additive>
struct ByScore {
  static bool additive(const AttentionProblem& problem) { return problem.score == ScoreOp::additive; }
  static std::size_t scratch_bytes(const AttentionProblem& problem) {
    return (additive(problem) ? Additive::scratch_bytes : Dot::scratch_bytes)(problem);
  }
  static bool whole(const AttentionProblem& problem, const LaneMap& map, void* scratch) {
    return (additive(problem) ? attend<Additive> : attend<Dot>)(problem, map, scratch);
  }
  static void spans(const AttentionProblem& problem, const LaneMap& map, std::int64_t first, std::int64_t last,
                    void* partials, void* scratch) {
    (additive(problem) ? attend_spans<Additive> : attend_spans<Dot>)(problem, map, first, last, partials, scratch);
  }
  static constexpr StripKernel kernel() {
    using T = typename Dot::Compute;
    return {strip_rows<T>, 1, scratch_bytes, partial_bytes<T>, whole, spans, attend_merge<Dot>, nullptr, turn_lanes<T>};
  }
};
template <typename T>
constexpr StripKernel strip_kernel() {
  return ByScore<Walk<T>, Walk<T, T, AdditiveScore<T>>>::kernel();
}

#if HWY_TARGET == HWY_AVX3
/// One row after the other, values that it does not see taken as 0: what remains when some result of a strip is NaN.
template <class W>
void attend_bf16_rows(const AttentionProblem& problem, const LaneMap& map, void* scratch) {
  for (std::int64_t n = 0; n < map.heads; ++n)
    for (std::int64_t i = 0; i < map.rows; ++i) {
      W::begin_task(problem, 1, scratch);
      W walk(problem, {map.batch, map.head + n, 1, map.row + i, 1}, scratch);
      walk.silence = true;
      walk.kept_scores.only(static_cast<int>(n * map.rows + i));
      walk_spans<Bf16Walk>(walk);
      finish<Bf16Walk>(walk, Nan::write);
    }
}
constexpr StripKernel bf16_strip_kernel() {
  StripKernel kernel = ByScore<Bf16Walk, Bf16Walk>::kernel();
  kernel.rows_by_row = attend_bf16_rows<Bf16Walk>;
  kernel.task_strips = 16;  // pairs of values are made once for all of them
  kernel.byte_form = bf16_byte_form;
  return kernel;
}
extern const AttentionTarget amx_table;
constexpr StripKernel tiled_bf16_strip_kernel() {
  StripKernel kernel = bf16_strip_kernel();
  kernel.attend = attend<TiledBf16Walk>;
  kernel.attend_spans = attend_spans<TiledBf16Walk>;
  kernel.attend_merge = attend_merge<WidenedBf16Walk>;
  kernel.rows_by_row = attend_bf16_rows<TiledBf16Walk>;
  kernel.byte_form = nullptr;
  return kernel;
}
const AttentionTarget amx_table = {"amx", strip_kernel<float>(), strip_kernel<double>(), tiled_bf16_strip_kernel()};
#else
constexpr StripKernel bf16_strip_kernel() { return {}; }
#endif

extern const AttentionTarget attention_table;
const AttentionTarget attention_table = {HWY_TARGET == HWY_AVX2   ? "avx2"
                                         : HWY_TARGET == HWY_AVX3 ? "avx512"
                                                                  : "neon",
                                         strip_kernel<float>(), strip_kernel<double>(), bf16_strip_kernel()};

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
  const AttentionTarget* const built[] = {
#if HWY_TARGETS & HWY_AVX3
      &N_AVX3::amx_table, &N_AVX3::attention_table,
#endif
#if HWY_TARGETS & HWY_AVX2
      &N_AVX2::attention_table,
#endif
#if HWY_TARGETS & HWY_NEON
      &N_NEON::attention_table,
#endif
      nullptr};
  for (const AttentionTarget* target : built)
    if (target != nullptr && std::strcmp(target->name, name) == 0) return target;
  return nullptr;
}

}  // namespace attn::kernels
#endif
