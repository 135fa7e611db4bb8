// src/kernels/gemm/product.h: matrix products on the best kernel of this processor, shared among threads.
#pragma once
#include "kernels/reference.h"

namespace attn::kernels {

/// Products of one shape: dims of the batch outermost first; strides in elements, 0 where an operand is shared.
struct GemmBatch {
  int dims = 0;
  const std::int64_t* sizes = nullptr;
  const std::int64_t* a_strides = nullptr;
  const std::int64_t* b_strides = nullptr;
  const std::int64_t* y_strides = nullptr;

  std::int64_t items() const;
  /// `first` moved to item i, given the bytes of an element of a and b, and of y.
  GemmProblem item(const GemmProblem& first, std::int64_t i, std::int64_t operand_bytes, std::int64_t result_bytes) const;
};

/// Whether products take bf16 as it is, by the processor's own dot product of pairs; else its operands go through f32, and a
/// sum may differ in its last bits from that of a processor that does.
bool multiplies_bf16();

/// Computes the product, or all products of a batch in one parallel run. The kernel, the cut and the threads do not change a bit.
/// Elements f32 and f64, and bf16 where `multiplies_bf16`.
void multiply(const GemmProblem& problem, const GemmBatch& batch = {});

}  // namespace attn::kernels
