// src/tensor/packed_linear.h: computes linear with weights that are packed once for many calls.
#pragma once
#include <attn/tensor.h>

#include "kernels/gemm/packed.h"

namespace attn {

/// Computes activation(linear(x, weight, bias)) without gradient history. The bits are those of the two calls. The
/// weight is packed once, when the object is made; for few rows of x a call then reads the weight sequentially. The
/// object has a copy of the weight, so later changes of the weight have no effect. Copies of the object share the
/// packed weight.
class PackedLinear {
 public:
  /// Returns whether weights of this dtype can be packed: f32, f64, and bf16 if the processor has a bf16 dot product.
  static bool takes(Dtype dtype);
  explicit PackedLinear(const Tensor& weight);
  Tensor operator()(const Tensor& x, const Tensor& bias,
                    kernels::Activation activation = kernels::Activation::none) const;

 private:
  Dtype dtype_;
  kernels::PackedWeights weights_;
};

}  // namespace attn
