// src/attention/score/lower_score.h: score_mod checked against the scores and lowered to what kernels read.
#pragma once
#include <attn/score.h>

#include "attention/lower.h"

namespace attn {

/// A program points into the rest; moving keeps the pointers good.
struct LoweredProgram {
  kernels::ScoreProgram program;
  std::vector<kernels::ScoreStep> steps;
  std::vector<double> constants;
  std::vector<kernels::ScoreLookup> lookups;
  std::vector<Tensor> looked_up;  // the tensors as they were given, one a lookup
  std::vector<Tensor> read;       // what the lookups read: f32 or f64
  std::vector<Tensor> values;     // the floating tensors as they were given: what gets a gradient
};
struct LoweredScore {
  LoweredProgram any_rows, one_head;
};
/// `computed`: f32 or f64. Where there are no scores, nothing.
LoweredScore lower_score(const ScoreExpression& expression, const ScoreShape& shape, const Lengths& lowered,
                         Dtype computed);

/// The expression's derivatives for the backward pass; they point into the rest and into the gradients.
struct LoweredScoreGradient {
  kernels::ScoreGradient gradient;
  LoweredProgram program;
  std::vector<kernels::ScoreSlope> slopes;
};
/// `forward`: the same expression, whose tensors are read again; `gradients`: of each of its `values`, contiguous and
/// of the compute type, to be added to, or undefined where none is wanted.
LoweredScoreGradient lower_score_gradient(const ScoreExpression& expression, const LoweredProgram& forward,
                                          const std::vector<Tensor>& gradients, const ScoreShape& shape,
                                          const Lengths& lowered, Dtype computed);

/// The caller's callable behind a pointer, and the first exception it threw; moving keeps the pointer good.
class CallbackGate {
 public:
  CallbackGate() noexcept;
  CallbackGate(const ScoreCallback& callback, const ScoreShape& shape, const Lengths& lowered);
  CallbackGate(CallbackGate&&) noexcept;
  CallbackGate& operator=(CallbackGate&&) noexcept;
  ~CallbackGate();

  kernels::ScoreCall describe() const;
  /// Throws what a call has thrown.
  void rethrow() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attn
