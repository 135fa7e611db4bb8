// src/kernels/ref/attention_score.h: computes the score of one pair: dot product or additive score, softcap, bias
// terms, expression, temperature, masking.
#pragma once
#include "kernels/attention/mask/mask_program.h"
#include "kernels/ref/additive.h"
#include "kernels/ref/bf16_pairs.h"
#include "kernels/ref/score_program.h"

namespace attn::kernels::ATTN_REF_NAMESPACE {

/// Loads row j of K or V of one head, `dim` elements, in the compute type; 8-bit values are multiplied by their scale.
template <typename T>
void load_row(const KvRows& rows, const std::int64_t (&stride)[2], std::int64_t b, std::int64_t group, std::int64_t j,
              std::int64_t dim, T* to) {
  KvRows sequence = rows;
  if (rows.pages != nullptr) sequence.pages += b * rows.pages_stride;
  const std::int64_t start = b * stride[0] + group * stride[1] + sequence.offset(j);
  for (std::int64_t d = 0; d < dim; ++d) to[d] = load<T>(rows.base, rows.element, start + rows.element_offset(j, d));
  if (rows.scales == nullptr) return;
  const float* scales =
      rows.scales + b * rows.scale_batch_stride + group * rows.scale_head_stride + sequence.scale_offset(j);
  for (std::int64_t d = 0; d < dim; ++d) to[d] = to[d] * static_cast<T>(scales[d / rows.scale_group]);
}

template <typename T>
T bias_value(const BiasTerm& term, const AttentionProblem& problem, const Task& task, std::int64_t h, std::int64_t i,
             std::int64_t j) {
  if (term.op == BiasOp::dense) {
    const std::int64_t* stride = term.dense.stride;
    return load<T>(term.dense.data, term.element,
                   task.batch * stride[0] + h * stride[1] + i * stride[2] + j * stride[3]);
  }
  const std::int64_t distance = key_position(problem, task, j) - row_position(problem, task, i, term.bottom_right);
  if (term.op == BiasOp::slope)
    return load<T>(term.values, term.element, h * term.value_stride) * static_cast<T>(term.times(distance));
  return load<T>(term.values, term.element, term.bucket(distance) * term.bucket_stride + h * term.value_stride);
}

/// Multiplies a tangent or a derivative by a slope; 0 stays 0 whatever the slope is.
template <typename T>
T times_slope(T x, T slope) {
  return x != 0 ? x * slope : T(0);
}

/// Computes the scores of one query row. `scratch` has `elements` of T, for the row and one key.
template <typename T>
class RowScores {
 public:
  /// Returns the number of elements of scratch for the query, the key and the split exponentials of the query.
  static std::int64_t elements(std::int64_t dim) {
    return 2 * dim + dim * static_cast<std::int64_t>(sizeof(ExpSplit) / sizeof(float));
  }

  /// `product`: how bf16 operands are multiplied.
  RowScores(const AttentionProblem& problem, const Task& task, T* scratch, Bf16Product product = Bf16Product::wide)
      : problem_(problem), product_(product), task_(task), b_(task.batch), h_(task.head),
        group_(task.head / (problem.q_heads / problem.k_heads)), q_(scratch), k_(scratch + problem.dim),
        split_(reinterpret_cast<ExpSplit*>(scratch + 2 * problem.dim)) {
    if constexpr (sizeof(T) == sizeof(float))
      if (additive()) weight_sum_ = additive_weight_sum(static_cast<const float*>(problem.additive_w), problem.dim);
  }

  void begin_row(std::int64_t i) {
    i_ = i;
    const std::int64_t start = b_ * problem_.q_stride[0] + h_ * problem_.q_stride[1] + i * problem_.q_stride[2];
    const T scale = static_cast<T>(problem_.scale);
    for (std::int64_t d = 0; d < problem_.dim; ++d) {
      q_[d] = load<T>(problem_.q, problem_.element, start + d);
      if (!additive() && product_ == Bf16Product::wide) q_[d] = q_[d] * scale;
    }
    if constexpr (sizeof(T) == sizeof(float))
      if (additive())
        for (std::int64_t d = 0; d < problem_.dim; ++d) split_[d] = exp_split(q_[d]);
  }

  /// Computes the score itself (docs/numerics.md section 3.1).
  T score(std::int64_t j) {
    load_row(problem_.k, problem_.k_stride, b_, group_, j, problem_.dim, k_);
    if (additive()) return additive_of_row();
    if constexpr (sizeof(T) == sizeof(float))
      if (product_ != Bf16Product::wide)
        return dot_rows(product_, k_, q_, problem_.dim) * static_cast<T>(problem_.scale);
    T s = 0;
    for (std::int64_t d = 0; d < problem_.dim; ++d) s = fma(k_[d], q_[d], s);
    return s;
  }

  /// Computes the final score s (sections 3.1 to 3.3). `masked` is false if no mask hides key j. Returns false if the
  /// row does not see key j; k is read only if a mask or bias has not already decided that.
  bool visible(std::int64_t j, bool masked, T& s) {
    if (masked && !sees(problem_, task_, h_, i_, j)) return false;
    for (int n = 0; n < problem_.bias_count; ++n)
      if (bias(n, j) == -infinity<T>()) return false;
    s = score(j);
    if (problem_.softcap != 0) {
      const T cap = static_cast<T>(problem_.softcap);
      capped_ = tanh(s / cap);
      s = cap * capped_;
    }
    for (int n = 0; n < problem_.bias_count; ++n) s = s + bias(n, j);
    before_ = s;
    if (!problem_.score_mod.empty()) s = ScoreMachine<T>(problem_, {task_, h_, i_, j}).run(s);
    if (problem_.score_callback.call != nullptr) call_back(j, s);
    if (problem_.temperature != 1) s = s / static_cast<T>(problem_.temperature);
    return s != -infinity<T>();
  }

  /// The operands of the last score: the row's query (scaled, except for bf16 products and additive scores), the key,
  /// and tanh(s / c) if there is a softcap.
  const T* query() const { return q_; }
  const T* key() const { return k_; }
  T capped() const { return capped_; }
  /// Returns the last score as it was before the expression.
  T before_expression() const { return before_; }
  bool additive() const { return problem_.score == ScoreOp::additive; }
  /// Returns the slope of channel c of an additive score.
  AdditiveSlope<T> additive_slope_of(std::int64_t c) const {
    if constexpr (sizeof(T) == sizeof(float)) return additive_slope(split_[c], exp_split(k_[c]));
    else return additive_slope(q_[c], k_[c]);
  }

 private:
  /// Calls the caller's callable with a tile of one pair.
  void call_back(std::int64_t j, T& s) const {
    const ScoreCall& callback = problem_.score_callback;
    callback.call(callback.context, {.data = &s,
                                     .f64 = sizeof(T) == sizeof(double),
                                     .rows = 1,
                                     .keys = 1,
                                     .row_stride = 1,
                                     .key_stride = 1,
                                     .batch = problem_.item(task_),
                                     .head = h_,
                                     .row = i_,
                                     .key = j,
                                     .row_position = row_position(problem_, task_, i_, callback.bottom_right),
                                     .key_position = key_position(problem_, task_, j)});
  }

  T bias(int n, std::int64_t j) const { return bias_value<T>(problem_.bias[n], problem_, task_, h_, i_, j); }
  T additive_of_row() const {
    const T* w = static_cast<const T*>(problem_.additive_w);
    if constexpr (sizeof(T) == sizeof(float))
      return additive_score_of(w, weight_sum_, problem_.dim,
                               [&](std::int64_t c) { return one_plus(split_[c], exp_split(k_[c])); });
    else return additive_score(q_, k_, w, problem_.dim);
  }

  const AttentionProblem& problem_;
  Bf16Product product_;
  const Task& task_;
  std::int64_t b_, h_, group_, i_ = 0;
  T* q_;
  T* k_;
  ExpSplit* split_;
  T weight_sum_ = 0, capped_ = 0, before_ = 0;
};

}  // namespace attn::kernels::ATTN_REF_NAMESPACE
