// src/kernels/ref/normalizer_pairs.h: computes the weight and the derivatives of each pair with another normalizer than
// softmax, or with a function of the weight, in plain loops.
#pragma once
#include "kernels/ref/lookups.h"
#include "kernels/ref/normalizer.h"
#include "kernels/ref/pair_gradient.h"

namespace attn::kernels::ATTN_REF_NAMESPACE {

/// The gradients of the tensors that the expression of the weight looks up.
template <typename T>
class WeightLookups {
 public:
  static AttentionProblem of_weights(const AttentionProblem& p) {
    AttentionProblem weights = p;
    weights.score_mod = p.normalization->weight_mod;
    weights.score_mod_one_head = {};
    weights.score_gradient = p.normalization->weight_gradient;
    return weights;
  }
  static std::int64_t elements(const AttentionProblem& p) { return Lookups<T>::elements(of_weights(p)); }

  WeightLookups(const AttentionGradient& g, const Task& task, T* scratch)
      : g_(g), p_(of_weights(g.problem)), task_(task), b_(task.batch), h_(task.head), lookups_(p_, scratch) {}

  bool used() const { return p_.score_gradient != nullptr; }
  void begin() { lookups_.begin(p_); }
  void close() { lookups_.close(p_); }
  void wait(const StepOrder& step_order, std::int64_t key) const { lookups_.wait(p_, task_, step_order, key); }
  void finish(const StepOrder& step_order) const { lookups_.finish(p_, step_order, g_.adds_lookups); }

  /// Returns the expression of a weight.
  T modified(T weight, std::int64_t i, std::int64_t j) const {
    return p_.score_mod.empty() ? weight : ScoreMachine<T>(p_, {task_, h_, i, j}).run(weight);
  }
  /// Returns the derivative by the weight from that by its expression.
  T back(T derivative, T weight, std::int64_t i, std::int64_t j) const {
    if (!used() || p_.score_gradient->one) return derivative;
    ScoreMachine<T> slopes(p_.score_gradient->program, p_, {task_, h_, i, j});
    slopes.run(weight);
    return times_slope(derivative, slopes.value(p_.score_gradient->slope));
  }
  /// Adds what a pair gives to each lookup; r: the row in the step; first: the first key of the block.
  void add(T derivative, T weight, std::int64_t i, std::int64_t r, std::int64_t j, std::int64_t first) {
    if (!used() || p_.score_gradient->lookup_count == 0) return;
    ScoreMachine<T> slopes(p_.score_gradient->program, p_, {task_, h_, i, j});
    slopes.run(weight);
    const std::int64_t key = j - p_.keys_begin(task_);
    for (int n = 0; n < p_.score_gradient->lookup_count; ++n) {
      const ScoreSlope& lookup = p_.score_gradient->lookups[n];
      const T value = lookup.one ? derivative : times_slope(derivative, slopes.value(lookup.slope));
      lookups_.add(p_, n, {value, slopes.element(lookup), r, key, j - first}, g_.adds_lookups);
    }
  }

 private:
  const AttentionGradient& g_;
  AttentionProblem p_;
  const Task& task_;
  std::int64_t b_, h_;
  Lookups<T> lookups_;
};

/// Has the members of Pairs.
template <typename T>
class NormalizedPairs : public PairGradient<T> {
  using Base = PairGradient<T>;
  using Base::g_, Base::p_, Base::task_, Base::b_, Base::h_, Base::i_, Base::scores_, Base::v_, Base::dout_;

 public:
  static std::int64_t elements(const AttentionProblem& p) { return Base::elements(p) + WeightLookups<T>::elements(p); }

  using Base::weight;
  WeightLookups<T> weights;

  NormalizedPairs(const AttentionGradient& g, const Task& task, T* scratch, Bf16Product = Bf16Product::wide)
      : Base(g, task, scratch, Bf16Product::wide), weights(g, task, scratch + Base::elements(g.problem)),
        stage_(*g.problem.normalization) {}

  [[gnu::noinline]] void begin_row(std::int64_t i) {
    i_ = i;
    scores_.begin_row(i);
    const std::int64_t saved = (b_ * p_.q_heads + h_) * p_.q_rows + i;
    const T t = static_cast<const T*>(p_.sum)[saved];
    seen_ = t != 0;
    m_ = stage_.is_coupled() ? static_cast<const T*>(p_.max)[saved] : number_of_item<T>(p_, task_);
    t_ = seen_ && stage_.op == NormalizerOp::softmax ? T(1) / t : t;
    Base::load_dout();
    // the 64 rows of a step are begun again for each block of keys
    const auto row = static_cast<std::size_t>(i % query_block);
    if (!known_[row]) deltas_[row] = delta(saved);
    known_[row] = true;
    delta_ = deltas_[row];
  }

  /// Computes the pair with key j; returns false if the row does not see key j.
  [[gnu::noinline]] bool pair(std::int64_t j, bool masked) {
    if (!seen_ || !weigh(j, masked)) return false;
    Base::back_through_score(j, slope_ * (stage_.is_coupled() ? by_raw_ - delta_ : by_raw_));
    return true;
  }

  void add_to_weight_lookups(std::int64_t r, std::int64_t j, std::int64_t first) {
    weights.add(by_weight_, raw_, i_, r, j, first);
  }

  T sink() const { return seen_ ? weight_of(static_cast<const T*>(p_.sinks)[h_], m_) * t_ * (0 - delta_) : T(0); }

 private:
  /// Computes the weights and slope of the pair, and the derivatives by them.
  bool weigh(std::int64_t j, bool masked) {
    T s;
    if (!scores_.visible(j, masked, s)) return false;
    const Weighed<T> at = weighed(stage_.op, s, m_, t_);
    raw_ = at.weight;
    slope_ = at.slope;
    weight = weights.modified(raw_, i_, j);
    Base::load_value(j);
    by_weight_ = 0;
    for (std::int64_t d = 0; d < p_.value_dim; ++d) by_weight_ = fma(v_[d], dout_[d], by_weight_);
    Base::drop(j, by_weight_);
    by_raw_ = weights.back(by_weight_, raw_, i_, j);
    return true;
  }

  /// Computes what is subtracted from the derivatives of the row: chains over a block, the blocks added in order.
  T delta(std::int64_t saved) {
    if (!seen_ || !stage_.is_coupled()) return 0;
    T numerator = 0, denominator = 0;
    const std::int64_t end = p_.keys_end(task_);
    for (std::int64_t first = p_.keys_begin(task_); first < end; first += block_keys) {
      const std::int64_t last = first + block_keys < end ? first + block_keys : end;
      if (classify(p_, task_, {i_, i_ + 1, first, last, h_}) == Visibility::empty) continue;
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

  const Normalization& stage_;
  T m_ = 0, t_ = 0, delta_ = 0;
  T raw_ = 0, slope_ = 0, by_weight_ = 0, by_raw_ = 0;  // of the last pair: by_weight_ after the expression
  bool seen_ = false;
  T deltas_[query_block] = {};  // of row i at i mod 64
  bool known_[query_block] = {};
};

}  // namespace attn::kernels::ATTN_REF_NAMESPACE
