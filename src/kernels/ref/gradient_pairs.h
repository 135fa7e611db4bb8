// src/kernels/ref/gradient_pairs.h: computes the weight and the derivatives of each pair of a row and a key, in plain
// loops.
#pragma once
#include "kernels/attention/backward_problem.h"
#include "kernels/ref/attention_score.h"

namespace attn::kernels::ATTN_REF_NAMESPACE {

/// Computes weights and derivatives of one row's pairs, from the saved maximum and sum of the forward pass.
template <typename T>
class Pairs {
 public:
  static std::int64_t elements(const AttentionProblem& p) { return RowScores<T>::elements(p.dim) + 2 * p.value_dim; }

  /// The pair's weight in the output (after dropout), and the derivatives by the score, by the sum of its bias terms,
  /// and by the result of its expression.
  T weight = 0, score = 0, bias = 0, expression = 0;

  /// `product`: how bf16 operands are multiplied.
  Pairs(const AttentionGradient& g, std::int64_t b, std::int64_t h, T* scratch, Bf16Product product = Bf16Product::wide)
      : g_(g), p_(g.problem), product_(product), b_(b), h_(h), scores_(g.problem, b, h, scratch, product),
        v_(scratch + RowScores<T>::elements(p_.dim)), dout_(v_ + p_.value_dim) {}

  [[gnu::noinline]] void begin_row(std::int64_t i) {
    i_ = i;
    scores_.begin_row(i);
    const std::int64_t saved = (b_ * p_.q_heads + h_) * p_.q_rows + i;
    const T l = static_cast<const T*>(p_.sum)[saved];
    m_ = static_cast<const T*>(p_.max)[saved];
    seen_ = l != 0;
    inverse_ = seen_ ? T(1) / l : T(0);
    const std::int64_t out = b_ * p_.out_stride[0] + h_ * p_.out_stride[1] + i * p_.out_stride[2];
    const std::int64_t dout = b_ * g_.dout_stride[0] + h_ * g_.dout_stride[1] + i * g_.dout_stride[2];
    for (std::int64_t d = 0; d < p_.value_dim; ++d) dout_[d] = load<T>(g_.dout, p_.element, dout + d);
    if (g_.rows.delta != nullptr && !g_.rows.begins) {
      delta_ = static_cast<const T*>(g_.rows.delta)[saved];
      return;
    }
    for (std::int64_t d = 0; d < p_.value_dim; ++d) v_[d] = load<T>(p_.out, p_.element, out + d);
    delta_ = by_dout(v_);
    if (g_.dlogsumexp != nullptr) delta_ = delta_ - static_cast<const T*>(g_.dlogsumexp)[saved];
    if (g_.rows.delta != nullptr) static_cast<T*>(g_.rows.delta)[saved] = delta_;
  }

  /// Computes the pair with key j; returns false if the row does not see key j.
  [[gnu::noinline]] bool pair(std::int64_t j, bool masked) {
    T s;
    if (!seen_ || !scores_.visible(j, masked, s)) return false;
    const T p = weight_of(s) * inverse_;
    load_row(p_.v, p_.v_stride, b_, h_ / (p_.q_heads / p_.v_heads), j, p_.value_dim, v_);
    T dp = by_dout(v_);
    weight = p;
    if (p_.task.keep != nullptr) {
      const bool kept = p_.task.keep[(i_ - p_.task.first_row) * p_.task.keep_stride + j] != 0;
      weight = kept ? p * static_cast<T>(p_.keep_scale) : T(0);
      dp = kept ? dp * static_cast<T>(p_.keep_scale) : T(0);
    }
    // backward through the steps of the score, last step first: softmax, temperature, expression, bias, softcap
    expression = p * (dp - delta_);
    if (p_.temperature != 1) expression = expression / static_cast<T>(p_.temperature);
    bias = expression;
    if (const ScoreGradient* gradient = p_.score_gradient; gradient != nullptr && !gradient->one) {
      ScoreMachine<T> slopes(gradient->program, p_, {b_, h_, i_, j});
      slopes.run(scores_.before_expression());
      bias = times(expression, slopes.value(gradient->slope));
    }
    score = p_.softcap != 0 ? bias * fma(-scores_.capped(), scores_.capped(), T(1)) : bias;
    return true;
  }

  /// Calls give(lookup, value, element) with the pair's contribution to each lookup, in the order of the lookups.
  template <typename F>
  void each_lookup(std::int64_t j, F&& give) const {
    const ScoreGradient* gradient = p_.score_gradient;
    if (gradient == nullptr || gradient->lookup_count == 0) return;
    ScoreMachine<T> slopes(gradient->program, p_, {b_, h_, i_, j});
    slopes.run(scores_.before_expression());
    for (int n = 0; n < gradient->lookup_count; ++n) {
      const ScoreSlope& lookup = gradient->lookups[n];
      give(n, lookup.one ? expression : times(expression, slopes.value(lookup.slope)), slopes.element(lookup));
    }
  }

  T sink() const {
    return seen_ ? exp2((static_cast<const T*>(p_.sinks)[h_] - m_) * Constants<T>::log2e) * inverse_ * (0 - delta_)
                 : T(0);
  }
  const T* query() const { return scores_.query(); }
  const T* key() const { return scores_.key(); }
  const T* dout() const { return dout_; }
  bool additive() const { return scores_.additive(); }
  AdditiveSlope<T> additive_slope_of(std::int64_t c) const { return scores_.additive_slope_of(c); }

 private:
  bool words() const { return product_ != Bf16Product::wide; }
  /// Multiplies; a derivative of 0 stays 0 whatever the factor is.
  static T times(T derivative, T slope) { return derivative != 0 ? derivative * slope : T(0); }
  T weight_of(T s) const {
    if constexpr (sizeof(T) == sizeof(float))
      if (words()) return bf16_weight(s, m_);
    return exp2((s - m_) * Constants<T>::log2e);
  }
  /// Computes the dot product of a row of V, or of the output, with dO.
  T by_dout(const T* x) const {
    if constexpr (sizeof(T) == sizeof(float))
      if (words()) return dot_rows(product_, x, dout_, p_.value_dim);
    T sum = 0;
    for (std::int64_t d = 0; d < p_.value_dim; ++d) sum = fma(x[d], dout_[d], sum);
    return sum;
  }

  const AttentionGradient& g_;
  const AttentionProblem& p_;
  Bf16Product product_;
  std::int64_t b_, h_, i_ = 0;
  RowScores<T> scores_;
  T* v_;
  T* dout_;
  T m_ = 0, inverse_ = 0, delta_ = 0;
  bool seen_ = false;
};

}  // namespace attn::kernels::ATTN_REF_NAMESPACE
