// src/attention/score/lower_score.h: checks a score_mod against the scores and lowers it to the form that kernels read.
#pragma once
#include <attn/score.h>

#include "attention/lower.h"
#include "attention/score/score_lowering.h"

namespace attn {

struct LoweredScore {
  LoweredProgram any_rows, one_head;
};
/// Lowers the expression. `computed`: f32 or f64. If there are no scores, the programs are empty;
/// `values` is not.
LoweredScore lower_score(const ScoreExpression& expression, const ScoreShape& shape, const Lengths& lowered,
                         Dtype computed);

/// The derivatives of a score expression for the backward pass. `gradient` points into the other members and into the
/// memory of the gradients.
struct LoweredScoreGradient {
  kernels::ScoreGradient gradient;
  LoweredProgram program;
  std::vector<kernels::ScoreSlope> slopes;
};
/// `forward`: the lowered program of the same expression; its tensors are used again. `gradients`: for each tensor in
/// forward.values the memory, contiguous and in the compute type, to which the backward pass adds; undefined if that
/// gradient is not needed.
LoweredScoreGradient lower_score_gradient(const ScoreExpression& expression, const LoweredProgram& forward,
                                          const std::vector<Tensor>& gradients, const ScoreShape& shape,
                                          const Lengths& lowered, Dtype computed);

/// Holds the caller's callable behind a stable pointer, and the first exception that it threw; a move keeps the pointer
/// valid.
class CallbackGate {
 public:
  CallbackGate(const ScoreCallback& callback, const ScoreShape& shape, const Lengths& lowered);
  CallbackGate(CallbackGate&&) noexcept;
  CallbackGate& operator=(CallbackGate&&) noexcept;
  ~CallbackGate();

  kernels::ScoreCall describe() const;
  /// Rethrows the first exception of a callback.
  void rethrow() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attn
