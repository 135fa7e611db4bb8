// src/kernels/ref/dense_bias_sums.h: adds the gradients of dense biases, also of those that are broadcast over keys or
// rows, in plain loops.
#pragma once
#include "kernels/attention/backward_problem.h"
#include "kernels/ref/math.h"

#include <algorithm>

namespace attn::kernels::ATTN_REF_NAMESPACE {

/// The sums of a step. For a bias that is broadcast over keys each row has a chain over a block of keys, and the total
/// of the earlier blocks; for one that is broadcast over rows each key of a block has a chain over the rows.
template <typename T>
class DenseBiasSums {
 public:
  static std::int64_t elements(const AttentionProblem& p) { return 3 * 64 * p.bias_count; }

  /// `scratch`: elements() of them.
  DenseBiasSums(const AttentionGradient& g, const Task& rows, T* scratch) : g_(g), rows_(rows), scratch_(scratch) {}

  void begin() { std::fill_n(scratch_, elements(g_.problem), T(0)); }
  /// Waits until the step may add to the elements of keys up to `key`.
  void wait(const StepOrder& step_order, std::int64_t key) const {
    if (g_.dense_count != 0 && step_order.wait_dense != nullptr) step_order.wait_dense(step_order.context, key);
  }
  /// Adds the derivative of the pair of row r of the step and key j, in the block that begins at `first`.
  void add(std::int64_t r, std::int64_t j, std::int64_t first, T derivative) {
    for (int n = 0; n < g_.dense_count; ++n) {
      const DenseGradient& to = g_.dense[n];
      T* const sum = to.stride[3] == 0   ? sums(n).chain + r
                     : to.stride[2] == 0 ? sums(n).of_key + (j - first)
                                         : data(to) + r * to.stride[2] + j * to.stride[3];
      *sum = canonical(*sum + derivative);
    }
  }
  /// Closes the block of keys [first, last).
  void close(std::int64_t first, std::int64_t last) {
    for (int n = 0; n < g_.dense_count; ++n) {
      const DenseGradient& to = g_.dense[n];
      const Sums s = sums(n);
      for (std::int64_t r = 0; r < 64; ++r) s.total[r] = s.total[r] + s.chain[r];
      std::fill_n(s.chain, 64, T(0));
      if (to.stride[2] == 0 && to.stride[3] != 0)
        for (std::int64_t j = first; j < last; ++j)
          data(to)[j * to.stride[3]] = canonical(data(to)[j * to.stride[3]] + s.of_key[j - first]);
      std::fill_n(s.of_key, 64, T(0));
    }
  }
  /// Adds the sums over all keys.
  void finish(const StepOrder& step_order) {
    wait(step_order, every_key);
    for (int n = 0; n < g_.dense_count; ++n) {
      const DenseGradient& to = g_.dense[n];
      if (to.stride[3] != 0) continue;
      const T* const total = sums(n).total;
      T chain = 0;
      for (std::int64_t r = 0; r < rows_.rows; ++r) {
        chain = chain + total[r];
        if (to.stride[2] != 0) data(to)[r * to.stride[2]] = canonical(data(to)[r * to.stride[2]] + total[r]);
      }
      if (to.stride[2] == 0) *data(to) = canonical(*data(to) + chain);
    }
  }

 private:
  struct Sums {
    T *chain, *total, *of_key;  // [64] each
  };
  Sums sums(int n) const { return {scratch_ + n * 3 * 64, scratch_ + n * 3 * 64 + 64, scratch_ + n * 3 * 64 + 128}; }
  /// Returns the element of the step's first row and of key 0.
  T* data(const DenseGradient& to) const {
    return static_cast<T*>(to.data) + rows_.batch * to.stride[0] + rows_.head * to.stride[1] + rows_.row * to.stride[2];
  }

  const AttentionGradient& g_;
  const Task& rows_;
  T* scratch_;
};

}  // namespace attn::kernels::ATTN_REF_NAMESPACE
