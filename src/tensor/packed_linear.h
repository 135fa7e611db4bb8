// src/tensor/packed_linear.h: computes linear with weights that are packed once for many calls.
#pragma once
#include <attn/tensor.h>

#include "kernels/gemm/packed.h"

namespace attn {

/// Computes linear(x, weight, bias) without gradient history. The bits are the same as without packing. A call packs
/// nothing, and with few rows it reads the weights sequentially. The object has a copy of the weight, so later changes
/// of the weight have no effect. Copies of the object share the packed weight.
class PackedLinear {
 public:
  /// Returns true for f32 and f64, and for bf16 if the processor multiplies it.
  static bool takes(Dtype dtype);
  explicit PackedLinear(const Tensor& weight);
  Tensor operator()(const Tensor& x, const Tensor& bias) const;

 private:
  Dtype dtype_;
  kernels::PackedWeights weights_;
};

}  // namespace attn
