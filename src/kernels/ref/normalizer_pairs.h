// src/kernels/ref/normalizer_pairs.h: computes the weight and the derivatives of each pair with another normalizer than
// softmax, or with a function of the weight, in plain loops.
#pragma once
#include "kernels/ref/attention_score.h"
#include "kernels/ref/lookups.h"
#include "kernels/ref/normalizer.h"

namespace attn::kernels::ATTN_REF_NAMESPACE {

/// The gradients of the tensors that the expression of the weight looks up.
template <typename T>
class WeightLookups {
 public:
  static AttentionProblem of_weights(const AttentionProblem& p) {
    AttentionProblem weights = p;
    weights.score_mod = p.normalization->weight_mod;
    weights.score_gradient = p.normalization->weight_gradient;
    return weights;
  }
  static std::int64_t elements(const AttentionProblem& p) { return Lookups<T>::elements(of_weights(p)); }

  WeightLookups(const AttentionGradient& g, std::int64_t b, std::int64_t h, T* scratch)
      : g_(g), p_(of_weights(g.problem)), b_(b), h_(h), lookups_(p_, scratch) {}

  bool used() const { return p_.score_gradient != nullptr; }
  void begin() { lookups_.begin(p_); }
  void close() { lookups_.close(p_); }
  void wait(const StepOrder& step_order, std::int64_t key) const {
    if (used() && p_.score_gradient->elements != ElementOrder::none && step_order.wait_dense != nullptr)
      step_order.wait_dense(step_order.context, order_of_elements(p_, key));
  }
  void finish(const StepOrder& step_order) const {
    if (!used() || !g_.adds_lookups || !p_.score_gradient->has_lines()) return;
    if (step_order.wait_dense != nullptr) step_order.wait_dense(step_order.context, every_key);
    add_lines<T>(p_, lookups_.lines);
  }

  /// Returns the expression of a weight.
  T modified(T weight, std::int64_t i, std::int64_t j) const {
    return p_.score_mod.empty() ? weight : ScoreMachine<T>(p_, {b_, h_, i, j}).run(weight);
  }
  /// Returns the derivative by the weight from that by its expression.
  T back(T derivative, T weight, std::int64_t i, std::int64_t j) const {
    if (!used() || p_.score_gradient->one) return derivative;
    ScoreMachine<T> slopes(p_.score_gradient->program, p_, {b_, h_, i, j});
    slopes.run(weight);
    return times(derivative, slopes.value(p_.score_gradient->slope));
  }
  /// Adds what a pair gives to each lookup; r: the row in the step; first: the first key of the block.
  void add(T derivative, T weight, std::int64_t i, std::int64_t r, std::int64_t j, std::int64_t first) {
    if (!used() || p_.score_gradient->lookup_count == 0) return;
    ScoreMachine<T> slopes(p_.score_gradient->program, p_, {b_, h_, i, j});
    slopes.run(weight);
    const std::int64_t key = j - p_.keys_begin(b_);
    for (int n = 0; n < p_.score_gradient->lookup_count; ++n) {
      const ScoreSlope& lookup = p_.score_gradient->lookups[n];
      const T value = lookup.one ? derivative : times(derivative, slopes.value(lookup.slope));
      const std::int64_t element = slopes.element(lookup);
      if (lookup.line == ScoreLine::pair) {
        lookups_.give(n, j - first, r, value, element);
      } else if (lookup.line == ScoreLine::element) {
        if (T* to = static_cast<T*>(lookup.gradient) + element; g_.adds_lookups) *to = *to + value;
      } else {
        const std::int64_t line = lookup.line == ScoreLine::row   ? r
                                  : lookup.line == ScoreLine::key ? key
                                                                  : distance_line(p_, r, key);
        LineSums<T>& lines = lookups_.lines[n];
        lines.sums[line] = lines.sums[line] + value;
        lines.places[line] = element;
      }
    }
  }

 private:
  static T times(T derivative, T slope) { return derivative != 0 ? derivative * slope : T(0); }

  const AttentionGradient& g_;
  AttentionProblem p_;
  std::int64_t b_, h_;
  Lookups<T> lookups_;
};

/// Has the members of Pairs.
template <typename T>
class NormalizedPairs {
 public:
  static std::int64_t elements(const AttentionProblem& p) {
    return RowScores<T>::elements(p.dim) + 2 * p.value_dim + WeightLookups<T>::elements(p);
  }

  T weight = 0, score = 0, bias = 0, expression = 0;
  WeightLookups<T> weights;

  NormalizedPairs(const AttentionGradient& g, std::int64_t b, std::int64_t h, T* scratch,
                  Bf16Product = Bf16Product::wide)
      : weights(g, b, h, scratch + RowScores<T>::elements(g.problem.dim) + 2 * g.problem.value_dim), g_(g),
        p_(g.problem), stage_(*g.problem.normalization), b_(b), h_(h), scores_(g.problem, b, h, scratch),
        v_(scratch + RowScores<T>::elements(p_.dim)), dout_(v_ + p_.value_dim) {}

  [[gnu::noinline]] void begin_row(std::int64_t i) {
    i_ = i;
    scores_.begin_row(i);
    const std::int64_t saved = (b_ * p_.q_heads + h_) * p_.q_rows + i;
    const T t = static_cast<const T*>(p_.sum)[saved];
    seen_ = t != 0;
    m_ = stage_.is_coupled() ? static_cast<const T*>(p_.max)[saved] : number_of_item<T>(p_, b_);
    t_ = seen_ && stage_.op == NormalizerOp::softmax ? T(1) / t : t;
    const std::int64_t dout = b_ * g_.dout_stride[0] + h_ * g_.dout_stride[1] + i * g_.dout_stride[2];
    for (std::int64_t d = 0; d < p_.value_dim; ++d) dout_[d] = load<T>(g_.dout, p_.element, dout + d);
    // the 64 rows of a step are begun again for each block of keys
    const auto row = static_cast<std::size_t>(i % query_block);
    if (!known_[row]) deltas_[row] = delta(saved);
    known_[row] = true;
    delta_ = deltas_[row];
  }

  /// Computes the pair with key j; returns false if the row does not see key j.
  [[gnu::noinline]] bool pair(std::int64_t j, bool masked) {
    if (!seen_ || !weigh(j, masked)) return false;
    // backward through the steps of the score, last step first: normalizer, temperature, expression, bias, softcap
    expression = slope_ * (stage_.is_coupled() ? by_raw_ - delta_ : by_raw_);
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
  void add_to_weight_lookups(std::int64_t r, std::int64_t j, std::int64_t first) {
    weights.add(by_weight_, raw_, i_, r, j, first);
  }

  T sink() const {
    return seen_ ? exp2((static_cast<const T*>(p_.sinks)[h_] - m_) * Constants<T>::log2e) * t_ * (0 - delta_) : T(0);
  }
  const T* query() const { return scores_.query(); }
  const T* key() const { return scores_.key(); }
  const T* dout() const { return dout_; }
  bool additive() const { return scores_.additive(); }
  AdditiveSlope<T> additive_slope_of(std::int64_t c) const { return scores_.additive_slope_of(c); }

 private:
  static T times(T derivative, T slope) { return derivative != 0 ? derivative * slope : T(0); }

  /// Computes the weights and slope of the pair, and the derivatives by them.
  bool weigh(std::int64_t j, bool masked) {
    T s;
    if (!scores_.visible(j, masked, s)) return false;
    const Weighed<T> at = weighed(stage_.op, s, m_, t_);
    raw_ = at.weight;
    slope_ = at.slope;
    weight = weights.modified(raw_, i_, j);
    load_row(p_.v, p_.v_stride, b_, h_ / (p_.q_heads / p_.v_heads), j, p_.value_dim, v_);
    by_weight_ = 0;
    for (std::int64_t d = 0; d < p_.value_dim; ++d) by_weight_ = fma(v_[d], dout_[d], by_weight_);
    if (p_.task.keep != nullptr) {
      const bool kept = p_.task.keep[(i_ - p_.task.first_row) * p_.task.keep_stride + j] != 0;
      weight = kept ? weight * static_cast<T>(p_.keep_scale) : T(0);
      by_weight_ = kept ? by_weight_ * static_cast<T>(p_.keep_scale) : T(0);
    }
    by_raw_ = weights.back(by_weight_, raw_, i_, j);
    return true;
  }

  /// Computes what is subtracted from the derivatives of the row: chains over a block, the blocks added in order.
  T delta(std::int64_t saved) {
    if (!seen_ || !stage_.is_coupled()) return 0;
    T numerator = 0, denominator = 0;
    const std::int64_t end = p_.keys_end(b_);
    for (std::int64_t first = p_.keys_begin(b_); first < end; first += block_keys) {
      const std::int64_t last = first + block_keys < end ? first + block_keys : end;
      if (classify(p_, b_, {i_, i_ + 1, first, last, h_}) == Visibility::empty) continue;
      T a = 0, b = 0;
      for (std::int64_t j = first; j < last; ++j) {
        if (!weigh(j, true)) continue;
        a = fma(slope_, by_raw_, a);
        b = b + slope_;
      }
      numerator = numerator + a;
      denominator = denominator + b;
    }
    if (stage_.op != NormalizerOp::softmax) return numerator / denominator;
    return g_.dlogsumexp != nullptr ? numerator - static_cast<const T*>(g_.dlogsumexp)[saved] : numerator;
  }

  const AttentionGradient& g_;
  const AttentionProblem& p_;
  const Normalization& stage_;
  std::int64_t b_, h_, i_ = 0;
  RowScores<T> scores_;
  T* v_;
  T* dout_;
  T m_ = 0, t_ = 0, delta_ = 0;
  T raw_ = 0, slope_ = 0, by_weight_ = 0, by_raw_ = 0;  // of the last pair: by_weight_ after the expression
  bool seen_ = false;
  T deltas_[query_block] = {};  // of row i at i mod 64
  bool known_[query_block] = {};
};

}  // namespace attn::kernels::ATTN_REF_NAMESPACE
