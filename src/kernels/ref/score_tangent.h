// src/kernels/ref/score_tangent.h: computes the tangent of the score of one pair, step by step as the score itself.
#pragma once
#include "kernels/attention/tangent_problem.h"
#include "kernels/ref/attention_score.h"

namespace attn::kernels::ATTN_REF_NAMESPACE {

/// Loads a row of a tangent, shaped [B, H, T, columns].
template <typename T>
void load_tangent(const void* data, const std::int64_t (&stride)[3], Element element, std::int64_t b, std::int64_t head,
                  std::int64_t at, std::int64_t columns, T* to) {
  const std::int64_t start = b * stride[0] + head * stride[1] + at * stride[2];
  for (std::int64_t d = 0; d < columns; ++d) to[d] = load<T>(data, element, start + d);
}

/// Computes the tangents of the scores of one row.
template <typename T>
class ScoreTangent {
 public:
  static std::int64_t elements(const AttentionProblem& p) { return 2 * p.dim; }

  ScoreTangent(const AttentionTangent& t, const AttentionProblem& p, const Task& task, T* scratch)
      : t_(t), p_(p), task_(task), b_(task.batch), h_(task.head), q_(scratch), k_(scratch + p.dim) {}

  void begin_row(std::int64_t i) {
    i_ = i;
    if (t_.dq == nullptr) return;
    load_tangent(t_.dq, t_.dq_stride, p_.element, b_, h_, i, p_.dim, q_);
    for (std::int64_t d = 0; d < p_.dim; ++d) q_[d] = q_[d] * static_cast<T>(p_.scale);
  }

  /// Returns the tangent of the last of `scores`, that of key j, through the steps of docs/numerics.md section 3.2.
  T of(const RowScores<T>& scores, std::int64_t j) {
    if (!t_.has_score_tangents()) return T(0);
    T by_q = 0, by_k = 0;
    if (t_.dq != nullptr)
      for (std::int64_t d = 0; d < p_.dim; ++d) by_q = fma(scores.key()[d], q_[d], by_q);
    if (t_.dk != nullptr) {
      load_tangent(t_.dk, t_.dk_stride, p_.element, b_, h_ / (p_.q_heads / p_.k_heads), j, p_.dim, k_);
      for (std::int64_t d = 0; d < p_.dim; ++d) by_k = fma(k_[d], scores.query()[d], by_k);
    }
    T ds = t_.dk == nullptr ? by_q : t_.dq == nullptr ? by_k : by_q + by_k;
    if (p_.softcap != 0) ds = times_slope(ds, fma(-scores.capped(), scores.capped(), T(1)));
    capped_ = ds;
    for (int n = 0; n < t_.bias_count; ++n) {
      const T of_bias = bias_value<T>(t_.bias[n], p_, task_, h_, i_, j);
      ds = of_bias == -infinity<T>() ? of_bias : ds + of_bias;
    }
    if (const ScoreGradient* gradient = p_.score_gradient; gradient != nullptr && !gradient->one) {
      ScoreMachine<T> slopes(gradient->program, p_, {task_, h_, i_, j});
      slopes.run(scores.before_expression());
      ds = times_slope(ds, slopes.value(gradient->slope));
    }
    return p_.temperature != 1 ? ds / static_cast<T>(p_.temperature) : ds;
  }

  /// The last tangent as it was after the softcap.
  T capped() const { return capped_; }
  /// The rows of the tangents of q (scaled) and, after of(), of k.
  const T* query() const { return q_; }
  const T* key() const { return k_; }

 private:
  const AttentionTangent& t_;
  const AttentionProblem& p_;
  const Task& task_;
  std::int64_t b_, h_, i_ = 0;
  T *q_, *k_;
  T capped_ = 0;
};

}  // namespace attn::kernels::ATTN_REF_NAMESPACE
