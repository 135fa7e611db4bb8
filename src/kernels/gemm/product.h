// src/kernels/gemm/product.h: matrix products on the best kernel of this processor, shared among threads.
#pragma once
#include "kernels/reference.h"

#include <cstddef>

namespace attn::kernels {

/// Products of one shape: dims of the batch outermost first; strides in elements, 0 where an operand is shared.
struct GemmBatch {
  int dims = 0;
  const std::int64_t* sizes = nullptr;
  const std::int64_t* a_strides = nullptr;
  const std::int64_t* b_strides = nullptr;
  const std::int64_t* y_strides = nullptr;

  std::int64_t items() const;
  /// `first` moved to item i; elements of a and b, and of y, are so many bytes.
  GemmProblem item(const GemmProblem& first, std::int64_t i, std::size_t bytes) const;
};

/// Computes the product, or all products of a batch in one parallel run. The kernel, the cut and the threads do not change a bit.
void multiply(const GemmProblem& problem, const GemmBatch& batch = {});

}  // namespace attn::kernels
