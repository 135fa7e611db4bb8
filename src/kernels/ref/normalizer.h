// src/kernels/ref/normalizer.h: computes a weight and its slope from a score, for every normalizer.
#pragma once
#include "kernels/attention/normalizer_problem.h"
#include "kernels/ref/element.h"
#include "kernels/ref/math.h"

namespace attn::kernels::ATTN_REF_NAMESPACE {

/// Returns the score as sparsemax and entmax-1.5 compare it with the threshold.
template <typename T>
T below_maximum(NormalizerOp op, T s, T m) {
  return op == NormalizerOp::entmax15 ? (s - m) * T(0.5) : s - m;
}

/// A weight, and the slope u by which its row's gradients are weighted.
template <typename T>
struct Weighed {
  T weight, slope;
};
/// `m`, `t`: of softmax m and 1 / l; of sparsemax and entmax-1.5 m and the threshold; of the others the number of the
/// item, and nothing.
template <typename T>
Weighed<T> weighed(NormalizerOp op, T s, T m, T t) {
  switch (op) {
    case NormalizerOp::softmax: {
      const T w = weight_of(s, m) * t;
      return {w, w};
    }
    case NormalizerOp::sigmoid: {
      const T y = sigmoid(s + m);
      return {y, y * (1 - y)};
    }
    case NormalizerOp::relu_squared: {
      const T x = s <= 0 ? T(0) : s;
      return {x * x * m, (x + x) * m};
    }
    default: {
      const T over = below_maximum(op, s, m) - t;
      const bool none = over <= 0;
      const T x = none ? T(0) : over;
      if (op == NormalizerOp::entmax15) return {x * x, x};
      return {x, none ? T(0) : T(1)};
    }
  }
}

/// Returns the number that sigmoid adds to the scores of an item, or the factor of relu_squared.
template <typename T>
T number_of_item(const AttentionProblem& p, const Task& task) {
  return static_cast<T>(p.normalization->of_item[p.item(task)]);
}

}  // namespace attn::kernels::ATTN_REF_NAMESPACE
