// src/kernels/ref/pair_gradient.h: computes what the pairs of all normalizers have in common in the backward pass: the
// operands, dropout, and the derivatives by the steps of the score, in plain loops.
#pragma once
#include "kernels/attention/backward_problem.h"
#include "kernels/ref/attention_score.h"

namespace attn::kernels::ATTN_REF_NAMESPACE {

/// A pair of a row and a key; one object for all pairs of a head, which are computed one after another.
template <typename T>
class PairGradient {
 public:
  static std::int64_t elements(const AttentionProblem& p) { return RowScores<T>::elements(p.dim) + 2 * p.value_dim; }

  /// The pair's weight in the output (after dropout), and the derivatives by the score, by the sum of its bias terms,
  /// and by the result of its expression.
  T weight = 0, score = 0, bias = 0, expression = 0;

  /// Calls give(lookup, value, element) with the pair's contribution to each lookup, in the order of the lookups.
  template <typename F>
  void each_lookup(std::int64_t j, F&& give) const {
    const ScoreGradient* gradient = p_.score_gradient;
    if (gradient == nullptr || gradient->lookup_count == 0) return;
    ScoreMachine<T> slopes(gradient->program, p_, {task_, h_, i_, j});
    slopes.run(scores_.before_expression());
    for (int n = 0; n < gradient->lookup_count; ++n) {
      const ScoreSlope& lookup = gradient->lookups[n];
      give(n, lookup.one ? expression : times_slope(expression, slopes.value(lookup.slope)), slopes.element(lookup));
    }
  }

  const T* query() const { return scores_.query(); }
  const T* key() const { return scores_.key(); }
  const T* dout() const { return dout_; }
  bool additive() const { return scores_.additive(); }
  AdditiveSlope<T> additive_slope_of(std::int64_t c) const { return scores_.additive_slope_of(c); }

 protected:
  /// `product`: how bf16 operands are multiplied.
  PairGradient(const AttentionGradient& g, const Task& task, T* scratch, Bf16Product product)
      : g_(g), p_(g.problem), task_(task), b_(task.batch), h_(task.head), scores_(g.problem, task, scratch, product),
        v_(scratch + RowScores<T>::elements(p_.dim)), dout_(v_ + p_.value_dim) {}

  void load_dout() {
    const std::int64_t dout = b_ * g_.dout_stride[0] + h_ * g_.dout_stride[1] + i_ * g_.dout_stride[2];
    for (std::int64_t d = 0; d < p_.value_dim; ++d) dout_[d] = load<T>(g_.dout, p_.element, dout + d);
  }
  void load_value(std::int64_t j) {
    load_row(p_.v, p_.v_stride, b_, h_ / (p_.q_heads / p_.v_heads), j, p_.value_dim, v_);
  }

  /// Applies dropout to the weight of the pair with key j, and to the derivative by it.
  void drop(std::int64_t j, T& derivative) {
    if (task_.keep == nullptr) return;
    const bool kept = task_.keep[(i_ - task_.first_row) * task_.keep_stride + j] != 0;
    weight = kept ? weight * static_cast<T>(p_.keep_scale) : T(0);
    derivative = kept ? derivative * static_cast<T>(p_.keep_scale) : T(0);
  }

  /// Computes the derivatives by the steps of the score from that by its end, last step first: temperature, expression,
  /// bias, softcap.
  void back_through_score(std::int64_t j, T derivative) {
    expression = derivative;
    if (p_.temperature != 1) expression = expression / static_cast<T>(p_.temperature);
    bias = expression;
    if (const ScoreGradient* gradient = p_.score_gradient; gradient != nullptr && !gradient->one) {
      ScoreMachine<T> slopes(gradient->program, p_, {task_, h_, i_, j});
      slopes.run(scores_.before_expression());
      bias = times_slope(expression, slopes.value(gradient->slope));
    }
    score = p_.softcap != 0 ? bias * fma(-scores_.capped(), scores_.capped(), T(1)) : bias;
  }

  const AttentionGradient& g_;
  const AttentionProblem& p_;
  const Task& task_;
  std::int64_t b_, h_, i_ = 0;
  RowScores<T> scores_;
  T* v_;     // a row of V, or of the output
  T* dout_;  // the row of dO
};

}  // namespace attn::kernels::ATTN_REF_NAMESPACE
