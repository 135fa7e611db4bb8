// src/kernels/gemm/packed.h: packs weights once for many products: the products then do not pack B, and read it
// contiguously when there are few rows.
#pragma once
#include "kernels/reference.h"

#include <memory>

namespace attn::kernels {

/// B of a product, packed as the kernel of this processor reads it. Copies share the memory.
class PackedWeights {
 public:
  /// Packs b as described by b, b_stride, n, k and element of `problem`.
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

/// Computes the product of `problem` with `weights` as its b, with the same bits as `multiply`. n, k and element must
/// be those of the weights, and the columns of y adjacent.
void multiply_packed(const GemmProblem& problem, const PackedWeights& weights);

}  // namespace attn::kernels
