// src/attention/normalizer/lowered_normalizer.h: checks how a call makes weights from scores, and lowers it to the form
// that kernels read.
#pragma once
#include <attn/attention.h>

#include "attention/score/lower_score.h"
#include "kernels/attention/normalizer_problem.h"

#include <memory>
#include <vector>

namespace attn {

/// How scores become weights, where it is not the plain softmax. `described` points into the other members.
struct LoweredNormalizer {
  kernels::Normalization described;
  std::vector<double> of_item;
  ScoreExpression weight_expression;
  LoweredProgram weight_mod;
  LoweredNormalizer() = default;
  LoweredNormalizer(const LoweredNormalizer&) = delete;
  LoweredNormalizer& operator=(const LoweredNormalizer&) = delete;
};

/// Returns whether weights are those of softmax, without a function of the weight. Softmax-1 is another normalizer.
inline bool is_plain_softmax(const AttentionOptions& options) {
  return options.normalizer.kind == Normalizer::Kind::softmax && options.weight_mod.empty();
}

/// Returns whether the options need more than the plain softmax, with or without sinks.
inline bool has_normalizer(const AttentionOptions& options) {
  return (options.normalizer.kind != Normalizer::Kind::softmax &&
          options.normalizer.kind != Normalizer::Kind::softmax1) ||
         !options.weight_mod.empty();
}

/// Checks the normalizer against the other options: sinks with one that has no sum, and the like.
void check_normalizer(const char* function, const AttentionOptions& options);

/// Lowers them. `problem`: with the sizes and lengths of the scores, the score and the lowered score_mod. `computed`:
/// f32 or f64.
std::shared_ptr<const LoweredNormalizer> lower_normalizer(const AttentionOptions& options, const ScoreShape& shape,
                                                          const Lengths& lengths, Dtype computed,
                                                          const kernels::AttentionProblem& problem);

/// The derivatives of the expression of the weight for the backward pass, and the description with them.
struct LoweredWeightGradient {
  LoweredScoreGradient expression;
  kernels::Normalization described;
};
/// `gradients`: as of lower_score_gradient.
void lower_weight_gradient(const LoweredNormalizer& lowered, const std::vector<Tensor>& gradients,
                           const ScoreShape& shape, const Lengths& lengths, Dtype computed, LoweredWeightGradient& to);

/// Computes a tile of rows by the kernel of the call, or by the reference code.
std::size_t normalizer_scratch_bytes(const kernels::AttentionProblem& problem);
void normalizer_rows(const kernels::AttentionProblem& problem, const kernels::Task& tile, void* scratch);

}  // namespace attn
