// src/kernels/ref/attention_gradient.h: computes the backward pass in plain loops: steps of 64 rows.
#pragma once
#include "kernels/attention/backward_problem.h"
#include "kernels/ref/dense_bias_sums.h"
#include "kernels/ref/gradient_pairs.h"
#include "kernels/ref/lookups.h"

#include <algorithm>

namespace attn::kernels::ATTN_REF_NAMESPACE {

/// The sums of each row over keys: a chain over a block of keys, and the total of the earlier blocks.
template <typename T>
struct Accumulated {
  T* chain;  // [64][width]
  T* total;
  std::int64_t count;

  static std::int64_t elements(std::int64_t width) { return 2 * query_block * width; }
  Accumulated(T* scratch, std::int64_t width)
      : chain(scratch), total(scratch + query_block * width), count(query_block * width) {
    for (std::int64_t n = 0; n < 2 * count; ++n) scratch[n] = 0;
  }
  /// Adds the chains to the totals, times `w` (a factor for each column, or null) or `factor`; clears the chains.
  void close(const T* w = nullptr, T factor = 1) {
    const std::int64_t width = count / query_block;
    for (std::int64_t n = 0; n < count; ++n) {
      total[n] = total[n] + (w != nullptr ? chain[n] * w[n % width] : chain[n] * factor);
      chain[n] = 0;
    }
  }
};

/// Computes a step: at most 64 rows of one head against all keys. PairsOf: computes each pair.
template <typename T, class PairsOf = Pairs<T>>
class Step {
 public:
  static std::int64_t elements(const AttentionProblem& p) {
    return PairsOf::elements(p) + Accumulated<T>::elements(p.dim) + block_keys * (p.dim + p.value_dim) +
           query_block * parameter_count(p) + DenseBiasSums<T>::elements(p) +
           Accumulated<T>::elements(additive_channels(p)) + Lookups<T>::elements(p);
  }

  Step(const AttentionGradient& g, const Task& rows, T* scratch, Bf16Product product = Bf16Product::wide)
      : g_(g), p_(g.problem), rows_(rows), pairs_(g, rows, scratch, product),
        dq_(scratch + PairsOf::elements(p_), p_.dim),
        dw_(dq_.chain + Accumulated<T>::elements(p_.dim), additive_channels(p_)),
        dk_(dw_.chain + Accumulated<T>::elements(additive_channels(p_))), dv_(dk_ + block_keys * p_.dim),
        parameters_(dv_ + block_keys * p_.value_dim), dense_(g, rows, parameters_ + query_block * parameter_count(p_)),
        lookups_(p_, parameters_ + query_block * parameter_count(p_) + DenseBiasSums<T>::elements(p_)) {}

  void all_keys(const StepOrder& step_order) {
    begin_sums();
    load_queries();
    const std::int64_t begin = p_.keys_begin(rows_), end = p_.keys_end(rows_);
    for (std::int64_t first = begin; first < end; first += block_keys) {
      const std::int64_t last = first + block_keys < end ? first + block_keys : end;
      if (visibility(first, last) == Visibility::empty) continue;
      clear(dk_, block_keys * (p_.dim + p_.value_dim));
      dense_.wait(step_order, last);
      Lookups<T>::wait(p_, rows_, step_order, last);
      if constexpr (has_weights) pairs_.weights.wait(step_order, last);
      each_pair(first, last, [&](std::int64_t r, std::int64_t j) {
        T *dk = dk_ + (j - first) * p_.dim, *dv = dv_ + (j - first) * p_.value_dim;
        if (pairs_.additive()) back_through_tanh(r, dk);
        else back_through_product(r, dk);
        for (std::int64_t d = 0; d < p_.value_dim; ++d) dv[d] = fma(pairs_.dout()[d], pairs_.weight, dv[d]);
        add_to_parameters(r, j);
        dense_.add(r, j, first, pairs_.bias);
        add_to_lookups(r, j, first);
        if constexpr (has_weights) pairs_.add_to_weight_lookups(r, j, first);
      });
      dense_.close(first, last);
      lookups_.close(p_);
      if constexpr (has_weights) pairs_.weights.close();
      const T* const w = pairs_.additive() ? static_cast<const T*>(p_.additive_w) : nullptr;
      dq_.close(w);
      dw_.close(nullptr, T(0.5));
      for (std::int64_t n = 0; w != nullptr && n < block_keys * p_.dim; ++n) dk_[n] = dk_[n] * w[n % p_.dim];
      if (step_order.wait != nullptr) step_order.wait(step_order.context, last);
      add_rows(dk_, p_.dim, first, last, g_.dk, g_.dk_stride, p_.k_heads);
      add_rows(dv_, p_.value_dim, first, last, g_.dv, g_.dv_stride, p_.v_heads);
      if (step_order.done != nullptr) step_order.done(step_order.context, last);
    }
    write_queries();
    if (g_.parameters != nullptr) write_parameters();
    dense_.finish(step_order);
    finish_lookups(step_order);
    if constexpr (has_weights) pairs_.weights.finish(step_order);
  }

 protected:
  /// Whether tensors that an expression of the weight looks up get gradients.
  static constexpr bool has_weights = requires(PairsOf& pairs) { pairs.weights; };

  static void clear(T* values, std::int64_t count) {
    for (std::int64_t n = 0; n < count; ++n) values[n] = 0;
  }
  Visibility visibility(std::int64_t first, std::int64_t last) const {
    return classify(p_, rows_, {rows_.row, rows_.row + rows_.rows, first, last, rows_.head});
  }

  /// Calls visit(row of the step, key) for the pairs that take part; rows ascend, and within a row the keys.
  template <typename F>
  void each_pair(std::int64_t first, std::int64_t last, F&& visit) {
    const bool masked = visibility(first, last) != Visibility::full;
    for (std::int64_t r = 0; r < rows_.rows; ++r) {
      pairs_.begin_row(rows_.row + r);
      for (std::int64_t j = first; j < last; ++j)
        if (pairs_.pair(j, masked)) visit(r, j);
    }
  }

  void back_through_product(std::int64_t r, T* dk) {
    T* dq = dq_.chain + r * p_.dim;
    for (std::int64_t d = 0; d < p_.dim; ++d) dq[d] = fma(pairs_.key()[d], pairs_.score, dq[d]);
    for (std::int64_t d = 0; d < p_.dim; ++d) dk[d] = fma(pairs_.query()[d], pairs_.score, dk[d]);
  }
  /// Adds the gradients of an additive score, the sum of w t with t = tanh(q + k): dw gets dS 2 t, dq and dk get dS (1
  /// - t^2). The factors 1/2 and w are applied when the block is complete.
  void back_through_tanh(std::int64_t r, T* dk) {
    T *dq = dq_.chain + r * p_.dim, *dw = dw_.chain + r * p_.dim;
    for (std::int64_t c = 0; c < p_.dim; ++c) {
      const AdditiveSlope<T> at = pairs_.additive_slope_of(c);
      const T u = pairs_.score * at.slope;
      dw[c] = dw[c] + pairs_.score * at.twice;
      dq[c] = dq[c] + u;
      dk[c] = dk[c] + u;
    }
  }

  void add_rows(const T* block, std::int64_t width, std::int64_t first, std::int64_t last, void* to,
                const std::int64_t (&stride)[3], std::int64_t heads) const {
    if (to == nullptr) return;
    T* total = static_cast<T*>(to) + rows_.batch * stride[0] + rows_.head / (p_.q_heads / heads) * stride[1];
    for (std::int64_t j = first; j < last; ++j)
      for (std::int64_t d = 0; d < width; ++d)
        total[j * stride[2] + d] = canonical(total[j * stride[2] + d] + block[(j - first) * width + d]);
  }

  /// Returns where the sums of row r of dQ over some keys are.
  T* sums_of_row(std::int64_t r) const {
    return static_cast<T*>(g_.rows.dq) + ((rows_.batch * p_.q_heads + rows_.head) * p_.q_rows + rows_.row + r) * p_.dim;
  }
  void load_queries() {
    if (g_.rows.delta != nullptr && g_.rows.begins)  // also of rows without a pair
      for (std::int64_t r = 0; r < rows_.rows; ++r) pairs_.begin_row(rows_.row + r);
    if (g_.rows.dq == nullptr || g_.rows.begins) return;
    for (std::int64_t r = 0; r < rows_.rows; ++r) std::copy_n(sums_of_row(r), p_.dim, dq_.total + r * p_.dim);
  }
  void write_queries() {
    const T scale = static_cast<T>(p_.scale);
    for (std::int64_t r = 0; r < rows_.rows; ++r) {
      const T* total = dq_.total + r * p_.dim;
      if (!g_.rows.ends) {
        for (std::int64_t d = 0; d < p_.dim; ++d) sums_of_row(r)[d] = canonical(total[d]);
        continue;
      }
      if (g_.dq == nullptr) return;
      const std::int64_t start =
          rows_.batch * g_.dq_stride[0] + rows_.head * g_.dq_stride[1] + (rows_.row + r) * g_.dq_stride[2];
      for (std::int64_t d = 0; d < p_.dim; ++d) store(g_.dq, p_.element, start + d, total[d] * scale);
    }
  }

  /// Adds the pair to the row's sums for the parameters; each sum is one chain over all keys.
  void add_to_parameters(std::int64_t r, std::int64_t j) {
    T* sums = parameters_ + r * parameter_count(p_) + (p_.sinks != nullptr ? 1 : 0);
    for (int n = 0; n < p_.bias_count; ++n) {
      const BiasTerm& term = p_.bias[n];
      const std::int64_t distance =
          key_position(p_, rows_, j) - row_position(p_, rows_, rows_.row + r, term.bottom_right);
      if (term.op == BiasOp::slope) *sums = fma(pairs_.bias, static_cast<T>(term.times(distance)), *sums);
      if (term.op == BiasOp::table) sums[term.bucket(distance)] = sums[term.bucket(distance)] + pairs_.bias;
      sums += parameters_of(term);
    }
  }

  void begin_sums() {
    clear(parameters_, query_block * parameter_count(p_));
    dense_.begin();
    lookups_.begin(p_);
    if constexpr (has_weights) pairs_.weights.begin();
  }

  void add_to_lookups(std::int64_t r, std::int64_t j, std::int64_t first) {
    T* parameter = parameters_ + r * parameter_count(p_) + parameters_before_lookups(p_);
    const std::int64_t key = j - p_.keys_begin(rows_);
    pairs_.each_lookup(j, [&](int n, T value, std::int64_t element) {
      if (p_.score_gradient->lookups[n].line != ScoreLine::step)
        return lookups_.add(p_, n, {value, element, r, key, j - first}, g_.adds_lookups);
      *parameter = *parameter + value;
      ++parameter;
    });
  }
  void finish_lookups(const StepOrder& step_order) const {
    const ScoreGradient* gradient = p_.score_gradient;
    if (gradient == nullptr) return;
    std::int64_t* to = g_.places + (rows_.block * p_.q_heads + rows_.head) * gradient->step_count;
    for (int n = 0; n < gradient->lookup_count; ++n) {
      if (gradient->lookups[n].line != ScoreLine::step) continue;
      ScoreMachine<T> slopes(gradient->program, p_, {rows_, rows_.head, rows_.row, p_.keys_begin(rows_)});
      slopes.run(0);
      *to++ = slopes.element(gradient->lookups[n]);
    }
    lookups_.finish(p_, step_order, g_.adds_lookups);
  }

  void write_parameters() {
    const std::int64_t count = parameter_count(p_);
    T* to = static_cast<T*>(g_.parameters) + (rows_.block * p_.q_heads + rows_.head) * count;
    clear(to, count);
    for (std::int64_t r = 0; r < rows_.rows; ++r) {
      if (p_.sinks != nullptr) {
        pairs_.begin_row(rows_.row + r);
        parameters_[r * count] = pairs_.sink();
      }
      if (pairs_.additive()) std::copy_n(dw_.total + r * p_.dim, p_.dim, parameters_ + (r + 1) * count - p_.dim);
      for (std::int64_t n = 0; n < count; ++n) to[n] = canonical(to[n] + parameters_[r * count + n]);
    }
  }

  const AttentionGradient& g_;
  const AttentionProblem& p_;
  const Task& rows_;
  PairsOf pairs_;
  Accumulated<T> dq_;
  Accumulated<T> dw_;  // for additive scores
  T* dk_;              // [64][D]   sums of the step for a block of keys
  T* dv_;              // [64][Dv]
  T* parameters_;      // [64][parameters]
  DenseBiasSums<T> dense_;
  Lookups<T> lookups_;
};

/// The kernel of steps of type StepOf<T>.
template <template <typename> class StepOf>
constexpr GradientKernel step_kernel() {
  return {.scratch_bytes = [](const AttentionGradient& g) { return bytes_for<StepOf>(g.problem); },
          .step =
              [](const AttentionGradient& g, const Task& rows, const StepOrder& step_order, void* scratch) {
                by_compute_type(g.problem.element, [&]<typename T>(T) {
                  StepOf<T>(g, rows, static_cast<T*>(scratch)).all_keys(step_order);
                });
                return true;
              }};
}

}  // namespace attn::kernels::ATTN_REF_NAMESPACE
