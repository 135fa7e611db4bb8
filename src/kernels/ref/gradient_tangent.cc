// src/kernels/ref/gradient_tangent.cc: computes the tangent of the backward pass in plain loops. This order of
// operations is the definition (docs/numerics.md section 11.1); every kernel has its bits.
#include "kernels/ref/attention_gradient.h"
#include "kernels/ref/score_tangent.h"

namespace attn::kernels::ATTN_REF_NAMESPACE {
namespace {

/// Computes the derivatives of one row's pairs and their tangents; the call has no score expression.
template <typename T>
class TangentPairs {
 public:
  static std::int64_t elements(const AttentionProblem& p) {
    return RowScores<T>::elements(p.dim) + ScoreTangent<T>::elements(p) + 3 * p.value_dim;
  }

  /// The tangents of the pair's weight in the output (after dropout), and of the derivatives by the score and by the
  /// sum of its bias terms; `values`: the weight and the derivative by the score themselves.
  T weight = 0, score = 0, bias = 0, expression = 0;
  struct Values {
    T weight = 0, score = 0;
  } values;

  TangentPairs(const AttentionGradient& g, const Task& task, T* scratch, Bf16Product)
      : g_(g), p_(g.problem), t_(*g.along), task_(task), b_(task.batch), h_(task.head), scores_(p_, task, scratch),
        tangent_(t_.operands, p_, task, scratch + RowScores<T>::elements(p_.dim)) {
    v_ = scratch + RowScores<T>::elements(p_.dim) + ScoreTangent<T>::elements(p_);
    dout_ = v_ + p_.value_dim;
    dout_tangent_ = dout_ + p_.value_dim;
  }

  void begin_row(std::int64_t i) {
    i_ = i;
    scores_.begin_row(i);
    tangent_.begin_row(i);
    const AttentionTangent& t = t_.operands;
    const std::int64_t saved = (b_ * p_.q_heads + h_) * p_.q_rows + i;
    const T l = static_cast<const T*>(p_.sum)[saved];
    m_ = static_cast<const T*>(p_.max)[saved];
    seen_ = l != 0;
    inverse_ = seen_ ? T(1) / l : T(0);
    mu_ = static_cast<const T*>(t.logsumexp)[saved];
    row_of(g_.dout, g_.dout_stride, h_, i, dout_);
    row_of(p_.out, p_.out_stride, h_, i, v_);
    delta_ = dot(v_, dout_);
    if (g_.dlogsumexp != nullptr) delta_ = delta_ - static_cast<const T*>(g_.dlogsumexp)[saved];
    T by_dout = 0;
    if (t_.dout != nullptr) {
      row_of(t_.dout, t_.dout_stride, h_, i, dout_tangent_);
      by_dout = dot(v_, dout_tangent_);
    }
    row_of(t.out, t.out_stride, h_, i, v_);
    delta_tangent_ = dot(v_, dout_);
    if (t_.dout != nullptr) delta_tangent_ = delta_tangent_ + by_dout;
    if (t_.dlogsumexp != nullptr) delta_tangent_ = delta_tangent_ - static_cast<const T*>(t_.dlogsumexp)[saved];
  }

  /// Computes the pair with key j; returns false if the row does not see key j.
  bool pair(std::int64_t j, bool masked) {
    T s;
    if (!seen_ || !scores_.visible(j, masked, s)) return false;
    const std::int64_t group = h_ / (p_.q_heads / p_.v_heads);
    const AttentionTangent& t = t_.operands;
    const T p = weight_of(s, m_) * inverse_;
    const T score_move = tangent_.of(scores_, j) - mu_;
    load_row(p_.v, p_.v_stride, b_, group, j, p_.value_dim, v_);
    T dp = dot(v_, dout_), dp_tangent = 0;
    if (t_.dout != nullptr) dp_tangent = dot(v_, dout_tangent_);
    if (t.dv != nullptr) {
      row_of(t.dv, t.dv_stride, group, j, v_);
      const T by_v = dot(v_, dout_);
      dp_tangent = t_.dout != nullptr ? dp_tangent + by_v : by_v;
    }
    values.weight = p;
    weight = p * score_move;
    if (task_.keep != nullptr) {
      const bool kept = task_.keep[(i_ - task_.first_row) * task_.keep_stride + j] != 0;
      for (T* x : {&values.weight, &weight, &dp, &dp_tangent}) *x = kept ? *x * static_cast<T>(p_.keep_scale) : T(0);
    }
    // backward through the steps of the score, last step first: softmax, temperature, bias, softcap
    const T u = dp - delta_;
    T e = p * u;
    bias = p * fma(score_move, u, dp_tangent - delta_tangent_);
    if (p_.temperature != 1) {
      e = e / static_cast<T>(p_.temperature);
      bias = bias / static_cast<T>(p_.temperature);
    }
    score = bias;
    values.score = e;
    if (p_.softcap != 0) {
      const T capped = scores_.capped(), slope = fma(-capped, capped, T(1));
      const T bend = (T(-2) * capped) * (tangent_.capped() / static_cast<T>(p_.softcap));  // the tangent of the slope
      score = times_slope(bias, slope);
      if (e != 0) score = fma(e, bend, score);
      values.score = times_slope(e, slope);
    }
    return true;
  }

  T sink() const {
    if (!seen_) return T(0);
    const T moved = t_.operands.sinks != nullptr ? static_cast<const T*>(t_.operands.sinks)[h_] : T(0);
    return weight_of(static_cast<const T*>(p_.sinks)[h_], m_) * inverse_ * fma(mu_ - moved, delta_, 0 - delta_tangent_);
  }
  template <typename F>
  void each_lookup(std::int64_t, F&&) const {}

  /// The operands of the last pair (q scaled), and their tangents where they move.
  const T* query() const { return scores_.query(); }
  const T* key() const { return scores_.key(); }
  const T* dout() const { return dout_; }
  const T* query_tangent() const { return tangent_.query(); }
  const T* key_tangent() const { return tangent_.key(); }
  const T* dout_tangent() const { return dout_tangent_; }
  static bool additive() { return false; }

 private:
  void row_of(const void* data, const std::int64_t (&stride)[3], std::int64_t head, std::int64_t at, T* to) const {
    load_tangent(data, stride, p_.element, b_, head, at, p_.value_dim, to);
  }
  T dot(const T* x, const T* y) const {
    T sum = 0;
    for (std::int64_t d = 0; d < p_.value_dim; ++d) sum = fma(x[d], y[d], sum);
    return sum;
  }

  const AttentionGradient& g_;
  const AttentionProblem& p_;
  const GradientTangent& t_;
  const Task& task_;
  std::int64_t b_, h_, i_ = 0;
  RowScores<T> scores_;
  ScoreTangent<T> tangent_;
  T *v_, *dout_, *dout_tangent_;
  T m_ = 0, inverse_ = 0, mu_ = 0, delta_ = 0, delta_tangent_ = 0;
  bool seen_ = false;
};

/// Computes the tangents of the gradients of a step. Each sum of the backward pass has two chains: one with the tangent
/// of the pair's factor, one with the tangent of the row.
template <typename T>
class TangentStep : public Step<T, TangentPairs<T>> {
  using Base = Step<T, TangentPairs<T>>;
  using Base::dense_, Base::g_, Base::p_, Base::rows_, Base::pairs_, Base::dq_, Base::dk_, Base::dv_;

 public:
  static std::int64_t elements(const AttentionProblem& p) {
    return Base::elements(p) + query_block * p.dim + block_keys * (p.dim + p.value_dim);
  }

  TangentStep(const AttentionGradient& g, const Task& rows, T* scratch) : Base(g, rows, scratch) {
    dq_moved_ = scratch + Base::elements(p_);
    dk_moved_ = dq_moved_ + query_block * p_.dim;
    dv_moved_ = dk_moved_ + block_keys * p_.dim;
  }

  void all_keys(const StepOrder& order) {
    const AttentionTangent& t = g_.along->operands;
    Base::begin_sums();
    const std::int64_t begin = p_.keys_begin(rows_), end = p_.keys_end(rows_);
    for (std::int64_t first = begin; first < end; first += block_keys) {
      const std::int64_t last = first + block_keys < end ? first + block_keys : end;
      if (Base::visibility(first, last) == Visibility::empty) continue;
      Base::clear(dk_, block_keys * (p_.dim + p_.value_dim));
      Base::clear(dq_moved_, query_block * p_.dim + block_keys * (p_.dim + p_.value_dim));
      dense_.wait(order, last);
      Base::each_pair(first, last, [&](std::int64_t r, std::int64_t j) {
        const std::int64_t key = j - first;
        Base::back_through_product(r, dk_ + key * p_.dim);
        add(pairs_.dout(), pairs_.weight, p_.value_dim, dv_ + key * p_.value_dim);
        if (t.dk != nullptr) add(pairs_.key_tangent(), pairs_.values.score, p_.dim, dq_moved_ + r * p_.dim);
        if (t.dq != nullptr) add(pairs_.query_tangent(), pairs_.values.score, p_.dim, dk_moved_ + key * p_.dim);
        if (g_.along->dout != nullptr)
          add(pairs_.dout_tangent(), pairs_.values.weight, p_.value_dim, dv_moved_ + key * p_.value_dim);
        Base::add_to_parameters(r, j);
        dense_.add(r, j, first, pairs_.bias);
      });
      dense_.close(first, last);
      dq_.close();
      if (t.dk != nullptr)
        for (std::int64_t n = 0; n < query_block * p_.dim; ++n) dq_.total[n] = dq_.total[n] + dq_moved_[n];
      if (order.wait != nullptr) order.wait(order.context, last);
      Base::add_rows(dk_, p_.dim, first, last, g_.dk, g_.dk_stride, p_.k_heads);
      if (t.dq != nullptr) Base::add_rows(dk_moved_, p_.dim, first, last, g_.dk, g_.dk_stride, p_.k_heads);
      Base::add_rows(dv_, p_.value_dim, first, last, g_.dv, g_.dv_stride, p_.v_heads);
      if (g_.along->dout != nullptr)
        Base::add_rows(dv_moved_, p_.value_dim, first, last, g_.dv, g_.dv_stride, p_.v_heads);
      if (order.done != nullptr) order.done(order.context, last);
    }
    Base::write_queries();
    if (g_.parameters != nullptr) Base::write_parameters();
    dense_.finish(order);
  }

 private:
  static void add(const T* row, T factor, std::int64_t columns, T* to) {
    for (std::int64_t d = 0; d < columns; ++d) to[d] = fma(row[d], factor, to[d]);
  }

  T *dq_moved_, *dk_moved_, *dv_moved_;  // the second chains of a block of keys: [64][D], [64][D], [64][Dv]
};

}  // namespace

extern const GradientKernel gradient_tangent_kernel;
const GradientKernel gradient_tangent_kernel = step_kernel<TangentStep>();

}  // namespace attn::kernels::ATTN_REF_NAMESPACE
