// src/kernels/attention/backward_problem.h: the backward pass of one attention call as plain data, and its kernels as
// function pointers.
#pragma once
#include "kernels/attention/problem.h"
#include "kernels/attention/query_tile.h"

#include <cstddef>
#include <cstdint>

namespace attn::kernels {

/// Query rows of a step of the backward pass: the blocks in which sums over queries are accumulated (docs/numerics.md
/// section 4).
inline constexpr int query_block = 64;

/// The query rows of a step: at most query_block rows of one head, within the lengths.
struct GradientRows {
  std::int64_t batch = 0, head = 0, row = 0, rows = 0;
  std::int64_t block = 0;  // its number among the call's blocks of rows
};

/// The gradient of a dense bias term: values of the compute type, broadcast as the term itself (a stride of 0 is summed
/// over).
struct DenseGradient {
  int term = 0;  // of problem.bias
  void* data = nullptr;
  std::int64_t stride[4] = {0, 0, 0, 0};
};

/// What the backward pass reads beside the call, and where its results go. Strides count elements: batch, head, row.
struct AttentionGradient {
  // with `out`, `max` and `sum` as the forward pass left them; `keep` of the step's rows
  AttentionProblem problem;
  const void* dout = nullptr;  // [B, Hq, Tq, Dv], element of the problem
  std::int64_t dout_stride[3] = {0, 0, 0};
  const void* dlogsumexp = nullptr;  // [B, Hq, Tq], compute type, or null
  void* dq = nullptr;                // as q; every row of a step is written
  void* dk = nullptr;                // as k; a step adds to it (or to `totals`), or null
  void* dv = nullptr;                // as v; a step adds to it (or to `totals`), or null
  std::int64_t dq_stride[3] = {0, 0, 0}, dk_stride[3] = {0, 0, 0}, dv_stride[3] = {0, 0, 0};
  // [blocks of rows, Hq, parameter_count], compute type: each block's sums, or null
  void* parameters = nullptr;
  const DenseGradient* dense = nullptr;  // of dense bias terms; a step adds to them
  int dense_count = 0;
  // [blocks of rows, Hq, step_count]: the elements that the sums of lookups by ScoreLine::step belong to
  std::int64_t* places = nullptr;
  bool adds_lookups = true;  // whether steps add to the gradients of the other lookups
  // kernels that round at the end: the sums of the keys [totals_begin, totals_end) of a unit's heads, in the kernel's
  // own layout
  float* totals = nullptr;
  std::int64_t totals_begin = 0, totals_end = 0;
};

/// Numbers of a head that a row's gradient adds to: its sink, then those of each bias term (ALiBi's slope, the table's
/// column), then one for each lookup of a score expression by ScoreLine::step, then the w of an additive score.
inline std::int64_t parameters_of(const BiasTerm& term) {
  return term.op == BiasOp::alibi ? 1 : term.op == BiasOp::relative ? term.buckets : 0;
}
inline std::int64_t additive_channels(const AttentionProblem& problem) {
  return problem.score == ScoreOp::additive ? problem.dim : 0;
}
inline std::int64_t step_lookups(const AttentionProblem& problem) {
  return problem.score_gradient != nullptr ? problem.score_gradient->step_count : 0;
}
inline std::int64_t parameters_before_lookups(const AttentionProblem& problem) {
  std::int64_t count = problem.sinks != nullptr ? 1 : 0;
  for (int n = 0; n < problem.bias_count; ++n) count += parameters_of(problem.bias[n]);
  return count;
}
inline std::int64_t parameter_count(const AttentionProblem& problem) {
  return parameters_before_lookups(problem) + step_lookups(problem) + additive_channels(problem);
}

/// The order of steps that add to the same memory. `wait` returns when the previous step has finished with the rows of
/// dK and dV of the keys below `key`; `wait_dense` does the same for gradients of dense biases and looked-up tensors,
/// where the previous step is another one; `done` hands both to the next step. Null: no other thread takes part.
///  `summed`: dK and dV (or totals) hold sums for the keys below *summed only; memory beyond is undefined. A step that
/// reaches later keys writes their sums and advances it. Null: all keys have sums.
///  `rounded`: this is the last step, and dk and dv are final for the keys below *rounded. The step rounds the sums of
/// the keys that it reaches or skips, and advances it. Null, or for keys beyond it: `finish` rounds them.
inline constexpr std::int64_t every_key = -1;
struct StepOrder {
  void (*wait)(void* context, std::int64_t key) = nullptr;
  void (*wait_dense)(void* context, std::int64_t key) = nullptr;
  void (*done)(void* context, std::int64_t key) = nullptr;
  void* context = nullptr;
  std::int64_t* summed = nullptr;
  std::int64_t* rounded = nullptr;
};

/// A step goes over all keys for its rows. Scratch is 64-byte aligned and at least scratch_bytes.
///  Returns false when a number is not finite. The reference must then recompute the whole head: a masked key may hold
/// NaN or inf, and 0 x NaN is NaN. dQ, dK and dV are invalid then; gradients of dense biases and looked-up tensors are
/// valid.
struct GradientKernel {
  std::size_t (*scratch_bytes)(const AttentionGradient&) = nullptr;
  bool (*step)(const AttentionGradient&, const GradientRows&, const StepOrder&, void* memory) = nullptr;
  /// Null where dk and dv take the sums themselves. Else: bytes of the sums of so many keys of a unit (the query heads
  /// that share heads of K or V), at 0 before its first step; and after its last dk and dv of the keys [begin, end)
  /// from them, of batch item and first query head.
  std::size_t (*totals_bytes)(const AttentionGradient&, std::int64_t keys) = nullptr;
  void (*finish)(const AttentionGradient&, std::int64_t batch, std::int64_t head, std::int64_t begin,
                 std::int64_t end) = nullptr;
  /// 0 in dK and dV (or totals) of the keys [begin, end), of batch item and query head. Null: its steps ignore
  /// StepOrder::summed.
  void (*clear_keys)(const AttentionGradient&, std::int64_t batch, std::int64_t head, std::int64_t begin,
                     std::int64_t end) = nullptr;
  /// Whether it draws the keep bits of dropout by counter itself; else they are bytes in problem.keep.
  bool draws = false;
};

struct GradientTarget {
  const char* name;  // "amx", "avx512", "avx2", "neon"
  GradientKernel f32, f64;
  GradientKernel additive_f32, additive_f64;
  // by the processor's dot product of bf16 pairs, or its tiles; no step: not built for this target
  GradientKernel bf16;

  /// For the problem's element and score; f32 and f64 have one for each.
  const GradientKernel& of(const AttentionProblem& p) const {
    const bool additive = p.score == ScoreOp::additive;
    if (p.element == Element::bf16) return bf16;
    return p.element == Element::f64 ? (additive ? additive_f64 : f64) : additive ? additive_f32 : f32;
  }
};

/// The kernels of a target by name, or null when they are not built in.
const GradientTarget* gradient_target(const char* name) noexcept;

/// The executable specification, f32 and f64: the build that this processor runs; both builds for the test that their
/// bits agree.
const GradientKernel& gradient_reference() noexcept;
const GradientKernel* gradient_reference_generic() noexcept;
const GradientKernel* gradient_reference_fma() noexcept;
/// The same for bf16 by the processor's dot product, or in `tiles` by its products of tiles.
const GradientKernel* bf16_gradient_reference_generic(bool tiles) noexcept;
const GradientKernel* bf16_gradient_reference_fma(bool tiles) noexcept;

}  // namespace attn::kernels
