// src/kernels/ref/attention_tangent.cc: computes the tangent of attention in plain loops. This order of operations is
// the definition (docs/numerics.md section 11); every kernel has its bits.
#include "kernels/attention/tangent_problem.h"
#include "kernels/ref/attention_score.h"

namespace attn::kernels::ATTN_REF_NAMESPACE {
namespace {

constexpr std::int64_t tangent_block = 64;  // keys; fixed: part of the order of operations

/// Computes the tangents of the rows of one (batch, head).
template <typename T>
class TangentRows {
 public:
  static std::int64_t elements(const AttentionProblem& p) {
    return RowScores<T>::elements(p.dim) + 2 * p.dim + 4 * p.value_dim;
  }

  TangentRows(const AttentionTangent& t, std::int64_t b, std::int64_t h, T* scratch)
      : t_(t), p_(t.call.problem), b_(b), h_(h), scores_(p_, b, h, scratch) {
    dq_ = scratch + RowScores<T>::elements(p_.dim);
    dk_ = dq_ + p_.dim;
    v_ = dk_ + p_.dim;
    by_score_ = v_ + p_.value_dim;
    by_value_ = by_score_ + p_.value_dim;
    total_ = by_value_ + p_.value_dim;
  }

  void row(std::int64_t i) {
    i_ = i;
    const std::int64_t saved = (b_ * p_.q_heads + h_) * p_.q_rows + i;
    const T l = static_cast<const T*>(p_.sum)[saved];
    m_ = static_cast<const T*>(p_.max)[saved];
    inverse_ = l != 0 ? T(1) / l : T(0);
    mu_ = 0;
    clear(total_);
    if (l != 0) {
      over_keys();
      if (t_.sinks != nullptr) {
        const T weight = weight_of(static_cast<const T*>(p_.sinks)[h_]);
        mu_ = fma(weight, static_cast<const T*>(t_.sinks)[h_], mu_);
      }
    }
    const std::int64_t out = b_ * p_.out_stride[0] + h_ * p_.out_stride[1] + i * p_.out_stride[2],
                       to = b_ * t_.out_stride[0] + h_ * t_.out_stride[1] + i * t_.out_stride[2];
    for (std::int64_t d = 0; d < p_.value_dim; ++d)
      store(t_.out, p_.element, to + d, fma(-mu_, load<T>(p_.out, p_.element, out + d), total_[d]));
    static_cast<T*>(t_.logsumexp)[saved] = canonical(mu_) + T(0);
  }

 private:
  void over_keys() {
    scores_.begin_row(i_);
    if (t_.dq != nullptr) {
      load_tangent(t_.dq, t_.dq_stride, h_, i_, p_.dim, dq_);
      for (std::int64_t d = 0; d < p_.dim; ++d) dq_[d] = dq_[d] * static_cast<T>(p_.scale);
    }
    const std::int64_t end = p_.keys_end(b_);
    for (std::int64_t first = p_.keys_begin(b_); first < end; first += tangent_block)
      block(first, first + tangent_block < end ? first + tangent_block : end);
  }

  void block(std::int64_t first, std::int64_t end) {
    const Visibility visibility = classify(p_, b_, {i_, i_ + 1, first, end, h_});
    if (visibility == Visibility::empty) return;
    clear(by_score_);
    clear(by_value_);
    T mu = 0;
    for (std::int64_t j = first; j < end; ++j) {
      T s;
      if (!scores_.visible(j, visibility == Visibility::partial, s)) continue;
      // pass 1: the pair's weight, and the tangent of its score
      T weight = weight_of(s);
      const T ds = t_.has_score_tangents() ? tangent(j) : T(0);
      mu = fma(weight, ds, mu);
      // pass 2: dropout comes after the sum
      const bool kept =
          p_.task.keep == nullptr || p_.task.keep[(i_ - p_.task.first_row) * p_.task.keep_stride + j] != 0;
      if (p_.task.keep != nullptr) weight = kept ? weight * static_cast<T>(p_.keep_scale) : T(0);
      // pass 3: chains over the block's keys
      if (t_.has_score_tangents()) {
        load_row(p_.v, p_.v_stride, b_, h_ / (p_.q_heads / p_.v_heads), j, p_.value_dim, v_);
        add(v_, kept ? weight * ds : T(0), by_score_);
      }
      if (t_.dv != nullptr) {
        load_tangent(t_.dv, t_.dv_stride, h_ / (p_.q_heads / p_.v_heads), j, p_.value_dim, v_);
        add(v_, weight, by_value_);
      }
    }
    for (std::int64_t d = 0; d < p_.value_dim; ++d) {
      if (t_.has_score_tangents()) total_[d] = total_[d] + by_score_[d];
      if (t_.dv != nullptr) total_[d] = total_[d] + by_value_[d];
    }
    mu_ = mu_ + mu;
  }

  /// Computes the tangent of the last score, that of key j, through the steps of docs/numerics.md section 3.2.
  T tangent(std::int64_t j) {
    T by_q = 0, by_k = 0;
    if (t_.dq != nullptr)
      for (std::int64_t d = 0; d < p_.dim; ++d) by_q = fma(scores_.key()[d], dq_[d], by_q);
    if (t_.dk != nullptr) {
      load_tangent(t_.dk, t_.dk_stride, h_ / (p_.q_heads / p_.k_heads), j, p_.dim, dk_);
      for (std::int64_t d = 0; d < p_.dim; ++d) by_k = fma(dk_[d], scores_.query()[d], by_k);
    }
    T ds = t_.dk == nullptr ? by_q : t_.dq == nullptr ? by_k : by_q + by_k;
    if (p_.softcap != 0) ds = times(ds, fma(-scores_.capped(), scores_.capped(), T(1)));
    for (int n = 0; n < t_.bias_count; ++n) {
      const T of_bias = bias_value<T>(t_.bias[n], p_, b_, h_, i_, j);
      ds = of_bias == -infinity<T>() ? of_bias : ds + of_bias;
    }
    if (const ScoreGradient* gradient = p_.score_gradient; gradient != nullptr && !gradient->one) {
      ScoreMachine<T> slopes(gradient->program, p_, {b_, h_, i_, j});
      slopes.run(scores_.before_expression());
      ds = times(ds, slopes.value(gradient->slope));
    }
    return p_.temperature != 1 ? ds / static_cast<T>(p_.temperature) : ds;
  }

  /// Multiplies; a tangent of 0 stays 0 whatever the slope is.
  static T times(T tangent, T slope) { return tangent != 0 ? tangent * slope : T(0); }
  T weight_of(T s) const { return exp2((s - m_) * Constants<T>::log2e) * inverse_; }
  void clear(T* x) const {
    for (std::int64_t d = 0; d < p_.value_dim; ++d) x[d] = 0;
  }
  void add(const T* x, T factor, T* to) const {
    for (std::int64_t d = 0; d < p_.value_dim; ++d) to[d] = fma(x[d], factor, to[d]);
  }
  void load_tangent(const void* data, const std::int64_t (&stride)[3], std::int64_t head, std::int64_t at,
                    std::int64_t columns, T* to) const {
    const std::int64_t start = b_ * stride[0] + head * stride[1] + at * stride[2];
    for (std::int64_t d = 0; d < columns; ++d) to[d] = load<T>(data, p_.element, start + d);
  }

  const AttentionTangent& t_;
  const AttentionProblem& p_;
  std::int64_t b_, h_, i_ = 0;
  RowScores<T> scores_;
  T *dq_, *dk_;  // rows of the tangents
  T* v_;         // a row of V, or of its tangent
  T *by_score_, *by_value_, *total_;
  T m_ = 0, inverse_ = 0, mu_ = 0;
};

std::size_t tangent_bytes(const AttentionTangent& t) {
  const AttentionProblem& p = t.call.problem;
  return p.element == Element::f64 ? sizeof(double) * static_cast<std::size_t>(TangentRows<double>::elements(p))
                                   : sizeof(float) * static_cast<std::size_t>(TangentRows<float>::elements(p));
}

template <typename T>
void each_tangent(const AttentionTangent& t, const GradientRows& rows, void* scratch) {
  TangentRows<T> of_head(t, rows.batch, rows.head, static_cast<T*>(scratch));
  for (std::int64_t i = rows.row; i < rows.row + rows.rows; ++i) of_head.row(i);
}
bool tangent_rows(const AttentionTangent& t, const GradientRows& rows, void* scratch) {
  t.call.problem.element == Element::f64 ? each_tangent<double>(t, rows, scratch)
                                         : each_tangent<float>(t, rows, scratch);
  return true;
}

}  // namespace

extern const TangentKernel tangent_kernel;
const TangentKernel tangent_kernel = {tangent_bytes, tangent_rows};

}  // namespace attn::kernels::ATTN_REF_NAMESPACE
