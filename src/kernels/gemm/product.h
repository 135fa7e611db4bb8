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
  /// `first` moved to item i, given the bytes of an element of each.
  GemmProblem item(const GemmProblem& first, std::int64_t i, std::int64_t a_bytes, std::int64_t b_bytes,
                   std::int64_t y_bytes) const;
};

/// Whether products take bf16 as it is, by the processor's own dot product of pairs; else its operands go through f32,
/// and a sum may differ in its last bits from that of a processor that does.
bool multiplies_bf16();

/// Whether products in f32 take a b of halves (`b_element`): all kernels but the specification.
bool multiplies_half_b();

/// Computes the product, or all products of a batch in one parallel run. The kernel, the cut and the threads do not
/// change a bit. Elements f32 and f64, and bf16 where `multiplies_bf16`; a b of halves where `multiplies_half_b`, if
/// y's columns are neighbours.
void multiply(const GemmProblem& problem, const GemmBatch& batch = {});

}  // namespace attn::kernels
