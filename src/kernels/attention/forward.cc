// src/kernels/attention/forward.cc: computes the forward pass of query tiles, whole or split over keys; compiled once
// for every instruction set.
#include "kernels/attention/dispatch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/forward.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/attention/mask/masked_values.h"
#include "kernels/attention/pass/amx_forward_pass-inl.h"
#include "kernels/attention/pass/forward_pass-inl.h"
#include "kernels/attention/pass/key_splits-inl.h"
#include "kernels/targets.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

template <class W>
bool attend_query_tile(const AttentionProblem& problem, const Task& tile, void* memory) {
  return with_pass<W>(problem, tile, memory, [](auto& pass) {
    visit_splits(pass);
    return finish(pass);
  });
}

/// Computes the query tiles of a task, the last one first, because under a causal mask it sees the most keys.
template <class W>
bool attend(const AttentionProblem& problem, const Task& tile, void* memory) {
  constexpr std::int64_t R = W::R;
  W::begin_task(problem, tile.rows, memory);
  if (tile.heads > 1) return attend_query_tile<W>(problem, tile, memory);
  bool numbers = true;
  for (std::int64_t row = (tile.rows - 1) / R * R; row >= 0; row -= R) {
    const std::int64_t rows = tile.rows - row < R ? tile.rows - row : R;
    numbers &= attend_query_tile<W>(problem, tile.with_rows(tile.head, tile.row + row, rows), memory);
  }
  return numbers;
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
  static bool whole(const AttentionProblem& problem, const Task& tile, void* memory) {
    return (additive(problem) ? attend<Additive> : attend<Dot>)(problem, tile, memory);
  }
  static void splits(const AttentionProblem& problem, const Task& tile, std::int64_t first, std::int64_t last,
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
void bf16_nan_safe_rows(const AttentionProblem& problem, const Task& tile, void* memory) {
  for (std::int64_t n = 0; n < tile.heads; ++n)
    for (std::int64_t i = 0; i < tile.rows; ++i) {
      W::begin_task(problem, 1, memory);
      W pass(problem, tile.with_rows(tile.head + n, tile.row + i, 1), memory);
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
