// src/kernels/ref/attention_tangent.cc: computes the tangent of attention in plain loops. This order of operations is
// the definition (docs/numerics.md section 11); every kernel has its bits.
#include "kernels/ref/score_tangent.h"

namespace attn::kernels::ATTN_REF_NAMESPACE {
namespace {

constexpr std::int64_t tangent_block = 64;  // keys; fixed: part of the order of operations

/// Computes the tangents of the rows of one (batch, head).
template <typename T>
class TangentRows {
 public:
  static std::int64_t elements(const AttentionProblem& p) {
    return RowScores<T>::elements(p.dim) + ScoreTangent<T>::elements(p) + 4 * p.value_dim;
  }

  TangentRows(const AttentionTangent& t, const Task& task, T* scratch)
      : t_(t), p_(t.call.problem), task_(task), b_(task.batch), h_(task.head), scores_(p_, task, scratch),
        tangent_(t, p_, task, scratch + RowScores<T>::elements(p_.dim)) {
    v_ = scratch + RowScores<T>::elements(p_.dim) + ScoreTangent<T>::elements(p_);
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
        const T weight = weight_of(static_cast<const T*>(p_.sinks)[h_], m_) * inverse_;
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
    tangent_.begin_row(i_);
    const std::int64_t end = p_.keys_end(task_);
    for (std::int64_t first = p_.keys_begin(task_); first < end; first += tangent_block)
      block(first, first + tangent_block < end ? first + tangent_block : end);
  }

  void block(std::int64_t first, std::int64_t end) {
    const Visibility visibility = classify(p_, task_, {i_, i_ + 1, first, end, h_});
    if (visibility == Visibility::empty) return;
    clear(by_score_);
    clear(by_value_);
    T mu = 0;
    for (std::int64_t j = first; j < end; ++j) {
      T s;
      if (!scores_.visible(j, visibility == Visibility::partial, s)) continue;
      // pass 1: the pair's weight, and the tangent of its score
      T weight = weight_of(s, m_) * inverse_;
      const T ds = tangent_.of(scores_, j);
      mu = fma(weight, ds, mu);
      // pass 2: dropout comes after the sum
      const bool kept = task_.keep == nullptr || task_.keep[(i_ - task_.first_row) * task_.keep_stride + j] != 0;
      if (task_.keep != nullptr) weight = kept ? weight * static_cast<T>(p_.keep_scale) : T(0);
      // pass 3: chains over the block's keys
      if (t_.has_score_tangents()) {
        load_row(p_.v, p_.v_stride, b_, h_ / (p_.q_heads / p_.v_heads), j, p_.value_dim, v_);
        add(v_, kept ? weight * ds : T(0), by_score_);
      }
      if (t_.dv != nullptr) {
        load_tangent(t_.dv, t_.dv_stride, p_.element, b_, h_ / (p_.q_heads / p_.v_heads), j, p_.value_dim, v_);
        add(v_, weight, by_value_);
      }
    }
    for (std::int64_t d = 0; d < p_.value_dim; ++d) {
      if (t_.has_score_tangents()) total_[d] = total_[d] + by_score_[d];
      if (t_.dv != nullptr) total_[d] = total_[d] + by_value_[d];
    }
    mu_ = mu_ + mu;
  }

  void clear(T* x) const {
    for (std::int64_t d = 0; d < p_.value_dim; ++d) x[d] = 0;
  }
  void add(const T* x, T factor, T* to) const {
    for (std::int64_t d = 0; d < p_.value_dim; ++d) to[d] = fma(x[d], factor, to[d]);
  }
  const AttentionTangent& t_;
  const AttentionProblem& p_;
  const Task& task_;
  std::int64_t b_, h_, i_ = 0;
  RowScores<T> scores_;
  ScoreTangent<T> tangent_;
  T* v_;  // a row of V, or of its tangent
  T *by_score_, *by_value_, *total_;
  T m_ = 0, inverse_ = 0, mu_ = 0;
};

std::size_t tangent_bytes(const AttentionTangent& t) { return bytes_for<TangentRows>(t.call.problem); }

bool tangent_rows(const AttentionTangent& t, const Task& rows, void* scratch) {
  by_compute_type(t.call.problem.element, [&]<typename T>(T) {
    TangentRows<T> of_head(t, rows, static_cast<T*>(scratch));
    for (std::int64_t i = rows.row; i < rows.row + rows.rows; ++i) of_head.row(i);
  });
  return true;
}

}  // namespace

extern const TangentKernel tangent_kernel;
const TangentKernel tangent_kernel = {tangent_bytes, tangent_rows};

}  // namespace attn::kernels::ATTN_REF_NAMESPACE
