// src/kernels/ref/gradient_pairs.h: computes the weight and the derivatives of each pair of a row and a key, in plain
// loops.
#pragma once
#include "kernels/ref/pair_gradient.h"

namespace attn::kernels::ATTN_REF_NAMESPACE {

/// Computes weights and derivatives of one row's pairs, from the saved maximum and sum of the forward pass.
template <typename T>
class Pairs : public PairGradient<T> {
  using Base = PairGradient<T>;
  using Base::g_, Base::p_, Base::task_, Base::b_, Base::h_, Base::i_, Base::scores_, Base::v_, Base::dout_;

 public:
  using Base::weight;

  Pairs(const AttentionGradient& g, const Task& task, T* scratch, Bf16Product product = Bf16Product::wide)
      : Base(g, task, scratch, product), product_(product) {}

  [[gnu::noinline]] void begin_row(std::int64_t i) {
    i_ = i;
    scores_.begin_row(i);
    const std::int64_t saved = (b_ * p_.q_heads + h_) * p_.q_rows + i;
    const T l = static_cast<const T*>(p_.sum)[saved];
    m_ = static_cast<const T*>(p_.max)[saved];
    seen_ = l != 0;
    inverse_ = seen_ ? T(1) / l : T(0);
    Base::load_dout();
    if (g_.rows.delta != nullptr && !g_.rows.begins) {
      delta_ = static_cast<const T*>(g_.rows.delta)[saved];
      return;
    }
    const std::int64_t out = b_ * p_.out_stride[0] + h_ * p_.out_stride[1] + i * p_.out_stride[2];
    for (std::int64_t d = 0; d < p_.value_dim; ++d) v_[d] = load<T>(p_.out, p_.element, out + d);
    delta_ = by_dout(v_);
    if (g_.dlogsumexp != nullptr) delta_ = delta_ - static_cast<const T*>(g_.dlogsumexp)[saved];
    if (g_.rows.delta != nullptr) static_cast<T*>(g_.rows.delta)[saved] = delta_;
  }

  /// Computes the pair with key j; returns false if the row does not see key j.
  [[gnu::noinline]] bool pair(std::int64_t j, bool masked) {
    T s;
    if (!seen_ || !scores_.visible(j, masked, s)) return false;
    const T p = weight_before_sum(s) * inverse_;
    Base::load_value(j);
    T dp = by_dout(v_);
    weight = p;
    Base::drop(j, dp);
    Base::back_through_score(j, p * (dp - delta_));
    return true;
  }

  T sink() const { return seen_ ? weight_of(static_cast<const T*>(p_.sinks)[h_], m_) * inverse_ * (0 - delta_) : T(0); }

 private:
  bool words() const { return product_ != Bf16Product::wide; }
  T weight_before_sum(T s) const {
    if constexpr (sizeof(T) == sizeof(float))
      if (words()) return bf16_weight(s, m_);
    return weight_of(s, m_);
  }
  /// Computes the dot product of a row of V, or of the output, with dO.
  T by_dout(const T* x) const {
    if constexpr (sizeof(T) == sizeof(float))
      if (words()) return dot_rows(product_, x, dout_, p_.value_dim);
    T sum = 0;
    for (std::int64_t d = 0; d < p_.value_dim; ++d) sum = fma(x[d], dout_[d], sum);
    return sum;
  }

  Bf16Product product_;
  T m_ = 0, inverse_ = 0, delta_ = 0;
  bool seen_ = false;
};

}  // namespace attn::kernels::ATTN_REF_NAMESPACE
