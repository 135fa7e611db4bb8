// src/kernels/attention/pass/parameter_gradients-inl.h: computes gradients of sinks, slopes, bias tables and dense
// biases, and runs the loop over keys of every backward pass.
#if defined(ATTN_PARAMETER_GRADIENTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_PARAMETER_GRADIENTS_INL_H
#undef ATTN_PARAMETER_GRADIENTS_INL_H
#else
#define ATTN_PARAMETER_GRADIENTS_INL_H
#endif

#include "kernels/attention/mask/masked_values-inl.h"
#include "kernels/attention/softmax/softmax_backward-inl.h"
#include "kernels/simd/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

inline float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }

/// Adds x to a result in memory.
template <typename T>
HWY_INLINE void add_to_result(T& result, T x) {
  result = canonical(result + x);
}

/// Computes gradients of parameters and dense biases: sums of the derivatives by the sum of bias terms, which are in
/// scratch_.d.
template <typename T>
class GradientSums : public SoftmaxBackward<T> {
 protected:
  using Pairs = SoftmaxBackward<T>;
  using Pairs::g_, Pairs::p_, Pairs::rows_, Pairs::scratch_, Pairs::vectors_;

 public:
  using Pairs::Pairs, Pairs::R, Pairs::N;

  // --- parameters: each has a row of scratch_.sums, with query rows in the lanes ----------------------------------
  bool has_parameters() const { return g_.parameters != nullptr; }
  void clear_sums() { Pairs::clear(scratch_.sums, BackwardScratch<T>::sum_rows(p_)); }

  /// Adds the block to each row's sums over its keys: for a slope and for the rows of a table.
  HWY_NOINLINE void add_to_parameters(const KvBlock& keys) {
    T* sums = scratch_.sums + (p_.sinks != nullptr ? R : 0);
    for (int n = 0; n < p_.bias_count; ++n) {
      const BiasTerm& term = p_.bias[n];
      if (term.op == BiasOp::table || (term.op == BiasOp::slope && !add_distances(term, keys, sums)))
        for_each_lane(p_, term, rows_, keys.first, [&](int lane, std::int64_t, std::int64_t at) {
          for (int r = 0; r < keys.count; ++r, ++at) {
            const T x = scratch_.d[r * R + lane];
            T& sum = sums[(term.op == BiasOp::slope ? 0 : term.bucket(at)) * R + lane];
            sum = term.op == BiasOp::slope ? fused(x, static_cast<T>(term.times(at)), sum) : sum + x;
          }
        });
      sums += parameters_of(term) * R;
    }
  }

  HWY_NOINLINE void write_parameters() {
    const Tag<T> d;
    const std::int64_t count = parameter_count(p_);
    if (p_.sinks != nullptr)
      for (int x = 0; x < vectors_ * N; x += N) {
        const auto inverse = hn::Load(d, scratch_.inverse + x),
                   sink = hn::Set(d, static_cast<const T*>(p_.sinks)[rows_.head]);
        const auto weight = hn::Mul(weight_of<T>(sink, hn::Load(d, scratch_.m + x)), inverse);
        const auto sum = hn::Mul(weight, hn::Sub(hn::Zero(d), hn::Load(d, scratch_.delta + x)));
        hn::Store(hn::IfThenZeroElse(hn::Eq(inverse, hn::Zero(d)), sum), d, scratch_.sums + x);
      }
    T* const to = static_cast<T*>(g_.parameters) + (rows_.block * p_.q_heads + rows_.head) * count;
    for (std::int64_t n = 0; n < count; ++n) {
      to[n] = 0;
      for (std::int64_t r = 0; r < rows_.rows; ++r) to[n] += scratch_.sums[n * R + r];
      to[n] = canonical(to[n]);
    }
  }

  // --- a dense bias ------------------------------------------------------------------------------------------------
  HWY_NOINLINE void add_to_dense(const KvBlock& keys) {
    for (int n = 0; n < g_.dense_count; ++n) {
      if (g_.dense[n].stride[3] == 0) sum_over_keys(keys, sums_of(n));
      else add_pairs(keys, g_.dense[n]);
    }
  }

  /// Called before the rows of dK and dV of these keys are needed, if other threads compute steps of the same head; a
  /// pass may prefetch them.
  void prefetch_totals(const KvBlock&) const {}

  /// Adds the sums over keys to the elements of their rows or, if the bias is broadcast over rows too, adds the chain
  /// of all rows to one element.
  HWY_NOINLINE void finish_dense() {
    for (int n = 0; n < g_.dense_count; ++n) {
      const DenseGradient& to = g_.dense[n];
      if (to.stride[3] != 0) continue;
      T* const data = rows_of(to);
      const T* const sums = sums_of(n);
      T chain = 0;
      for (std::int64_t r = 0; r < rows_.rows; ++r) {
        chain += sums[r];
        if (to.stride[2] != 0) add_to_result(data[r * to.stride[2]], sums[r]);
      }
      if (to.stride[2] == 0) add_to_result(*data, chain);
    }
  }

 private:
  /// Adds to the sums of a slope, with rows in the lanes. Returns false if distances cannot be counted
  /// (count_distances).
  bool add_distances(const BiasTerm& term, const KvBlock& keys, T* sums) {
    const Tag<T> d;
    alignas(64) T distance[R] = {};
    if (!count_distances(p_, term, rows_, keys.first, distance)) return false;
    const auto mirror = mirror_of<T>(term);
    for (int x = 0; x < vectors_ * N; x += N) {
      auto sum = hn::Load(d, sums + x), at = hn::Load(d, distance + x);
      for (int r = 0; r < keys.count; ++r, at = hn::Add(at, hn::Set(d, T(1))))
        sum = hn::MulAdd(hn::Load(d, scratch_.d + r * R + x), hn::Min(at, hn::Sub(mirror, at)), sum);
      hn::Store(sum, d, sums + x);
    }
    return true;
  }

  T* sums_of(int dense) const { return scratch_.sums + (parameter_count(p_) + dense) * R; }
  T* rows_of(const DenseGradient& to) const {
    return static_cast<T*>(to.data) + rows_.batch * to.stride[0] + rows_.head * to.stride[1] + rows_.row * to.stride[2];
  }

  /// Adds a chain over the block's keys to the row's sum.
  void sum_over_keys(const KvBlock& keys, T* sums) {
    const Tag<T> d;
    for (int x = 0; x < vectors_ * N; x += N) {
      auto chain = hn::Zero(d);
      for (int r = 0; r < keys.count; ++r) chain = hn::Add(chain, hn::Load(d, scratch_.d + r * R + x));
      hn::Store(hn::Add(hn::Load(d, sums + x), chain), d, sums + x);
    }
  }

  /// Adds each pair to its element, or a chain over the rows to the key's element.
  void add_pairs(const KvBlock& keys, const DenseGradient& to) {
    T* const data = rows_of(to);
    T* const rows = scratch_.scores.extra;  // [R][64]
    transpose(scratch_.d, std::int64_t{R}, std::int64_t{keys.count}, rows_.rows, rows, std::int64_t{kv_block});
    T of_key[kv_block] = {0};
    for (std::int64_t i = 0; i < rows_.rows; ++i) {
      const T* row = rows + i * kv_block;
      T* place = data + i * to.stride[2] + keys.first * to.stride[3];
      if (to.stride[2] == 0)
        for (int r = 0; r < keys.count; ++r) of_key[r] += row[r];
      else if (to.stride[3] == 1)
        for (int r = 0; r < keys.count; ++r) add_to_result(place[r], row[r]);
      else
        for (int r = 0; r < keys.count; ++r) add_to_result(place[r * to.stride[3]], row[r]);
    }
    if (to.stride[2] == 0)
      for (int r = 0; r < keys.count; ++r) add_to_result(data[(keys.first + r) * to.stride[3]], of_key[r]);
  }
};

/// Returns whether no key of the block has sums yet; the block's sums are then written, not added. All other keys
/// before the block's end that have no sums yet are set to 0.
template <class W>
bool begins_sums(const W& pass, const KvBlock& keys, std::int64_t* summed) {
  const std::int64_t end = keys.first + keys.count;
  if (summed == nullptr || end <= *summed) return false;
  const bool all = keys.first >= *summed;
  pass.clear_keys(*summed, all ? keys.first : end);
  *summed = end;
  return all;
}

/// Returns whether the block's sums are complete after this step and must be rounded. The keys before it that the step
/// has skipped are rounded here.
template <class W>
bool ends_sums(const W& pass, const KvBlock& keys, std::int64_t* rounded) {
  if constexpr (requires { pass.round_keys(keys.first, keys.first); }) {
    if (rounded == nullptr) return false;
    pass.round_keys(*rounded, keys.first);
    *rounded = keys.first + keys.count;
    return true;
  }
  return false;
}

/// Runs one step of the backward pass: dQ of its rows, and their contributions to dK, dV, the parameters, dense biases
/// and looked-up tensors. May return false when a number is not finite.
template <class W>
bool step_back(W& pass, const StepOrder& step_order) {
  pass.load_rows();
  const AttentionGradient& g = pass.gradient();
  const bool dense = g.dense_count != 0, sums = pass.has_parameters() || dense, score_mod = pass.score_mod().used();
  if (sums) pass.clear_sums();
  if (score_mod) pass.score_mod().begin();
  typename W::Blocks blocks(g.problem.keys_begin(pass.task()), g.problem.keys_end(pass.task()));
  KvBlock& keys = blocks.keys;
  bool first = !pass.load_dq();
  while (pass.next(blocks)) {
    keys.first_of_rows = first;
    keys.last_of_rows = keys.last_of_rows && g.rows.ends;
    first = false;
    pass.derive(keys, sums);
    if (score_mod) pass.score_mod().back(keys.first, keys.count, keys.ranges, step_order);
    if (pass.has_parameters()) pass.add_to_parameters(keys);
    if (dense && step_order.wait_dense != nullptr) step_order.wait_dense(step_order.context, keys.first + keys.count);
    if (dense) pass.add_to_dense(keys);
    pass.back_to_scores(keys);
    if (step_order.wait != nullptr) pass.prefetch_totals(keys);
    if (g.dq != nullptr || g.rows.dq != nullptr) pass.add_to_queries(keys);
    if (step_order.wait != nullptr) step_order.wait(step_order.context, keys.first + keys.count);
    keys.first_of_keys = begins_sums(pass, keys, step_order.summed);
    keys.last_of_keys = ends_sums(pass, keys, step_order.rounded);
    pass.add_to_dk_and_dv(keys);
    if (step_order.done != nullptr) step_order.done(step_order.context, keys.first + keys.count);
  }
  if (first) pass.clear_dq();
  if (pass.has_parameters()) pass.write_parameters();
  if (dense && step_order.wait_dense != nullptr) step_order.wait_dense(step_order.context, every_key);
  if (dense) pass.finish_dense();
  if (score_mod) pass.score_mod().finish(step_order);
  return pass.write_queries();
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
