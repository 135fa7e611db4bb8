// src/kernels/attention/tangent_problem.h: describes the tangent of one attention call (its Jacobian-vector product) as
// plain data, and its kernels as function pointers.
#pragma once
#include "kernels/attention/backward_problem.h"

#include <cstddef>
#include <cstdint>

namespace attn::kernels {

/// The tangent of one call: the tangents of its operands, and where those of its results go. Strides count elements:
/// batch, head, row. A null tangent is zero, and its terms are left out (docs/numerics.md section 11).
struct AttentionTangent {
  // The call as the backward pass reads it: with `out`, `max` and `sum` of the forward pass, and the derivative of the
  // score expression. Its gradients stay null.
  AttentionGradient call;
  const void *dq = nullptr, *dk = nullptr, *dv = nullptr;  // element of the problem, columns adjacent
  std::int64_t dq_stride[3] = {0, 0, 0}, dk_stride[3] = {0, 0, 0}, dv_stride[3] = {0, 0, 0};
  const BiasTerm* bias = nullptr;  // tangents of bias terms, which are terms of the same form
  int bias_count = 0;
  const void* sinks = nullptr;  // [Hq], compute type, or null
  void* out = nullptr;          // [B, Hq, Tq, Dv]
  std::int64_t out_stride[3] = {0, 0, 0};
  void* logsumexp = nullptr;  // [B, Hq, Tq] contiguous, compute type

  /// Whether some tangent changes the scores.
  bool has_score_tangents() const { return dq != nullptr || dk != nullptr || bias_count != 0; }
};

/// The direction in which a call and its incoming gradients move: what the tangent of the backward pass reads besides
/// the call (docs/numerics.md section 11.1).
struct GradientTangent {
  AttentionTangent operands;   // `out` and `logsumexp` are read: the tangents of the call's results
  const void* dout = nullptr;  // the tangent of the incoming gradient, element of the problem; null: 0
  std::int64_t dout_stride[3] = {0, 0, 0};
  const void* dlogsumexp = nullptr;  // the tangent of the logsumexp's incoming gradient, compute type; null: 0
};

/// Computes rows: at most query_block rows of one head, over all keys. Scratch is 64-byte aligned and has at least
/// scratch_bytes.
///  `rows` may return false when a number is NaN. The reference code must then compute them again
/// (mask/masked_values.h).
struct TangentKernel {
  std::size_t (*scratch_bytes)(const AttentionTangent&) = nullptr;
  bool (*rows)(const AttentionTangent&, const Task&, void* memory) = nullptr;
  /// Whether the kernel draws counter-based dropout itself; otherwise it reads bytes in Task::keep.
  bool draws = false;
};

struct TangentTarget {
  const char* name;  // "avx512", "avx2", "neon"
  TangentKernel f32, f64;
  // the tangent of the backward pass: its steps, with the tangents of the gradients as results
  GradientKernel gradient_f32, gradient_f64;
};

/// Returns the kernels of the target of that name ("amx" has those of "avx512"); null if it is not built in.
const TangentTarget* tangent_target(const char* name) noexcept;

/// Returns the tangent kernel of a build of the reference code, for f32 and f64. It is not in kernels::Reference, so
/// that a program without forward mode is not linked with it.
const TangentKernel& tangent_reference(const Reference& build) noexcept;
const GradientKernel& gradient_tangent_reference(const Reference& build) noexcept;

}  // namespace attn::kernels
