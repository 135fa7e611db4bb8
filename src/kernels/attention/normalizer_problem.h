// src/kernels/attention/normalizer_problem.h: describes how scores become weights where this is not the plain softmax:
// another normalizer, a function of the weight; and the kernels that compute such a call.
#pragma once
#include "kernels/attention/backward_problem.h"

#include <cstddef>
#include <cstdint>

namespace attn::kernels {

enum class NormalizerOp : std::uint8_t { softmax, sigmoid, sparsemax, entmax15, relu_squared };

/// The kernels of one element type and instruction set. Scratch is 64-byte aligned.
struct NormalizerKernel {
  std::size_t (*scratch_bytes)(const AttentionProblem&) = nullptr;
  /// Computes the forward pass of a tile of at most query_block rows of one head: the output, and every other result
  /// for which the problem or the task has a pointer, but lane_average, to which the caller adds. May return false when
  /// a number is NaN; the reference code must then compute the rows again, because a masked key may hold NaN or inf.
  bool (*rows)(const AttentionProblem&, const Task&, void* memory) = nullptr;
  GradientKernel gradient;
};

/// From scores to weights (docs/numerics.md section 13). The forward pass saves two numbers of each row, `max` and
/// `sum`: of softmax m and l; of sparsemax and entmax-1.5 m and the threshold, which is below 0; else 0 and 1. `sum` is
/// 0 if the row sees no key.
struct Normalization {
  NormalizerOp op = NormalizerOp::softmax;
  // sigmoid: the number that is added to the score; relu_squared: the factor. One for each batch item or sequence.
  const double* of_item = nullptr;
  ScoreProgram weight_mod;  // an expression of the weight, for rows of one head; empty: none
  // Its derivatives; set in the backward pass if there is an expression. No lookup has ScoreLine::step.
  const ScoreGradient* weight_gradient = nullptr;
  const NormalizerKernel* kernel = nullptr;     // null: only the reference code takes this call
  const NormalizerKernel* reference = nullptr;  // takes every call

  /// Returns whether the gradient of a score depends on the row's other weights.
  bool is_coupled() const { return op != NormalizerOp::sigmoid && op != NormalizerOp::relu_squared; }
};

/// Returns the reference code of the backward pass of this problem.
inline const GradientKernel& gradient_reference_of(const AttentionProblem& p) noexcept {
  return p.normalization != nullptr ? p.normalization->reference->gradient : gradient_reference();
}

struct NormalizerTarget {
  const char* name;  // "avx512", "avx2", "neon"
  NormalizerKernel f32, f64, additive_f32, additive_f64;

  const NormalizerKernel& of(const AttentionProblem& p) const {
    const bool additive = p.score == ScoreOp::additive;
    return p.element == Element::f64 ? (additive ? additive_f64 : f64) : additive ? additive_f32 : f32;
  }
};

/// Returns the kernels of the target of that name ("amx" has those of "avx512"); null if it is not built in.
const NormalizerTarget* normalizer_target(const char* name) noexcept;

/// Returns the kernel of a build of the reference code, for f32 and f64. It is not in its table, so that a program
/// without other normalizers does not carry it.
const NormalizerKernel& normalizer_reference(const Reference& build) noexcept;

}  // namespace attn::kernels
