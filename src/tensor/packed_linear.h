// src/tensor/packed_linear.h: linear with weights that are laid out once for many calls.
#pragma once
#include <attn/tensor.h>

#include "kernels/gemm/packed.h"

namespace attn {

/// linear(x, weight, bias) without history: the same bits, no packing in a call, and weights read straight ahead when
/// rows are few. A copy of the weight: what changes it later is not seen. Copies of this share it.
class PackedLinear {
 public:
  /// f32, f64, or bf16 where the processor multiplies it.
  static bool takes(Dtype dtype);
  explicit PackedLinear(const Tensor& weight);
  Tensor operator()(const Tensor& x, const Tensor& bias) const;

 private:
  Dtype dtype_;
  kernels::PackedWeights weights_;
};

}  // namespace attn
