// src/kernels/gemm/packed.h: weights laid out once for many products: no packing in each, and straight reads when rows
// are few.
#pragma once
#include "kernels/reference.h"

#include <memory>

namespace attn::kernels {

/// B of a product as the kernel of this processor reads it. Copies share the memory.
class PackedWeights {
 public:
  /// From the b, b_stride, n, k and element of `problem`.
  explicit PackedWeights(const GemmProblem& problem);

  std::int64_t n() const { return problem_.n; }
  std::int64_t k() const { return problem_.k; }
  std::size_t bytes() const { return bytes_; }

 private:
  friend void multiply_packed(const GemmProblem& problem, const PackedWeights& weights);
  GemmProblem problem_;
  std::size_t bytes_ = 0;
  std::shared_ptr<void> data_;
};

/// The product of `problem` with `weights` for its b: the same bits as `multiply`. n, k and element must be those of
/// the weights.
void multiply_packed(const GemmProblem& problem, const PackedWeights& weights);

}  // namespace attn::kernels
