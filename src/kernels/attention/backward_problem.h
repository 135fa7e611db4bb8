// src/kernels/attention/backward_problem.h: describes the backward pass of one attention call as plain data, and its
// kernels as function pointers.
#pragma once
#include "kernels/attention/problem.h"
#include "kernels/attention/query_tile.h"
#include "kernels/reference.h"

#include <cstddef>
#include <cstdint>

namespace attn::kernels {

struct GradientTangent;

/// The query rows of a step of the backward pass: a step computes one block of rows of one head, within the lengths,
/// over all keys. Sums over queries are accumulated in blocks of this size (docs/numerics.md section 4).
inline constexpr int query_block = 64;

/// The gradient of a dense bias term, in the compute type. It is broadcast as the term is: the gradient is summed where
/// a stride is 0.
struct DenseGradient {
  int term = 0;  // index in problem.bias
  void* data = nullptr;
  std::int64_t stride[4] = {0, 0, 0, 0};
};

/// The rows' sums of a call that has only some of their keys, or whose rows were prepared by another call.
struct RowGradients {
  void* dq = nullptr;     // [B, Hq, Tq, D], compute type: dQ over the keys so far, not scaled; or null
  void* delta = nullptr;  // [B, Hq, Tq], compute type; or null
  bool begins = true;     // there are no earlier keys: `dq` is not read, and `delta` is written instead of read
  bool ends = true;       // there are no later keys: dQ is written instead of `dq`
};

/// The backward pass of one call: its input, and where its results go. Strides count elements: batch, head, row.
struct AttentionGradient {
  // the call, with `out`, `max` and `sum` of the forward pass
  AttentionProblem problem;
  const void* dout = nullptr;  // [B, Hq, Tq, Dv], element of the problem
  std::int64_t dout_stride[3] = {0, 0, 0};
  const void* dlogsumexp = nullptr;  // [B, Hq, Tq], compute type, or null
  void* dq = nullptr;                // shaped as q, or null; a step writes all of its rows
  void* dk = nullptr;                // shaped as k, or null; a step adds to it (or to `totals`)
  void* dv = nullptr;                // shaped as v, or null; a step adds to it (or to `totals`)
  std::int64_t dq_stride[3] = {0, 0, 0}, dk_stride[3] = {0, 0, 0}, dv_stride[3] = {0, 0, 0};
  // [blocks of rows, Hq, parameter_count], compute type: the sums of each block; or null
  void* parameters = nullptr;
  const DenseGradient* dense = nullptr;  // gradients of dense bias terms; a step adds to them
  int dense_count = 0;
  // [blocks of rows, Hq, step_count]: for each lookup of ScoreLine::step, the element that its sum belongs to
  std::int64_t* places = nullptr;
  bool adds_lookups = true;  // whether steps add to the gradients of the other lookups
  // For kernels that round dK and dV at the end: the unrounded sums of the keys [totals_begin, totals_end) for the
  // heads of a unit (the query heads that share heads of K or V), in the kernel's own layout.
  float* totals = nullptr;
  std::int64_t totals_begin = 0, totals_end = 0;
  RowGradients rows;
  // For kernels of the tangent of the backward pass (tangent_problem.h): the direction. All results are then tangents
  // of the gradients.
  const GradientTangent* along = nullptr;
};

/// Returns the number of sums per row for a bias term. A head has these sums, in this order: its sink, those of each
/// bias term (ALiBi's slope, the table's column), one for each lookup of ScoreLine::step, and those for w of an
/// additive score.
inline std::int64_t parameters_of(const BiasTerm& term) {
  return term.op == BiasOp::slope ? 1 : term.op == BiasOp::table ? term.buckets : 0;
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
/// dK and dV of the keys below `key`. `wait_dense` does the same for gradients of dense biases and looked-up tensors,
/// whose previous step is another one. `done` reports the keys below `key` to the next step of both kinds. `every_key`
/// means all keys; `wait` for it returns when the previous step has ended, including its work after the kernel. Null
/// functions: no other thread takes part.
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

/// Functions that compute a step for all keys. Scratch is 64-byte aligned and has at least scratch_bytes.
///  `step` may return false when a number is not finite. The reference code must then recompute the whole head
/// (mask/masked_values.h). dQ, dK and dV are invalid then; gradients of dense biases and looked-up tensors are valid.
struct GradientKernel {
  std::size_t (*scratch_bytes)(const AttentionGradient&) = nullptr;
  bool (*step)(const AttentionGradient&, const Task&, const StepOrder&, void* memory) = nullptr;
  /// Null if steps add to dk and dv directly. Otherwise `totals_bytes` returns the bytes of the sums for `keys` keys of
  /// a unit (the query heads that share heads of K or V); they must be 0 before the unit's first step. After its last
  /// step, `finish` writes dk and dv of the keys [begin, end) from them, for the batch item and the first query head.
  std::size_t (*totals_bytes)(const AttentionGradient&, std::int64_t keys) = nullptr;
  void (*finish)(const AttentionGradient&, std::int64_t batch, std::int64_t head, std::int64_t begin,
                 std::int64_t end) = nullptr;
  /// Sets dK and dV (or totals) of the keys [begin, end) to 0, for batch item and query head. Null: the steps ignore
  /// StepOrder::summed.
  void (*clear_keys)(const AttentionGradient&, std::int64_t batch, std::int64_t head, std::int64_t begin,
                     std::int64_t end) = nullptr;
  /// Whether the kernel draws counter-based dropout itself; otherwise it reads bytes in Task::keep.
  bool draws = false;
};

struct GradientTarget {
  const char* name;  // "amx", "avx512", "avx2", "neon"
  GradientKernel f32, f64;
  GradientKernel additive_f32, additive_f64;
  // by the processor's dot product of bf16 pairs, or by AMX tiles; `step` is null if this target does not have it
  GradientKernel bf16;

  /// Returns the kernel for the problem's element and score; f32 and f64 have one for each score.
  const GradientKernel& of(const AttentionProblem& p) const {
    const bool additive = p.score == ScoreOp::additive;
    if (p.element == Element::bf16) return bf16;
    return p.element == Element::f64 ? (additive ? additive_f64 : f64) : additive ? additive_f32 : f32;
  }
};

/// Returns the kernels of the target of that name; null if it is not built in.
const GradientTarget* gradient_target(const char* name) noexcept;

/// Returns the reference code for f32 and f64.
inline const GradientKernel& gradient_reference() noexcept { return *reference().gradient; }

}  // namespace attn::kernels
