// src/tensor/packed_linear.cc: stores a weight [out, in] in the layout that the kernels read.
#include "tensor/packed_linear.h"

#include "kernels/gemm/product.h"
#include "tensor/rows.h"

namespace attn {
namespace {

kernels::Element product_element(Dtype dtype) {
  return dtype == Dtype::bf16 ? kernels::Element::bf16 : row_element_of(dtype);
}

}  // namespace

bool PackedLinear::takes(Dtype dtype) {
  return dtype == Dtype::f32 || dtype == Dtype::f64 || (dtype == Dtype::bf16 && kernels::multiplies_bf16());
}

PackedLinear::PackedLinear(const Tensor& weight)
    : dtype_(weight.dtype()), weights_({.n = weight.size(0),
                                        .k = weight.size(1),
                                        .b = weight.data(),
                                        .b_stride = {weight.stride(1), weight.stride(0)},
                                        .element = product_element(dtype_)}) {}

Tensor PackedLinear::operator()(const Tensor& x, const Tensor& bias, kernels::Activation activation) const {
  const Tensor rows = x.detach().contiguous(), wide = bias.defined() ? widened(bias).contiguous() : Tensor();
  Dims sizes = x.sizes();
  sizes[sizes.size() - 1] = weights_.n();
  const Tensor y = empty(sizes, dtype_);
  kernels::multiply_packed({.m = y.numel() / std::max<std::int64_t>(1, weights_.n()),
                            .n = weights_.n(),
                            .k = weights_.k(),
                            .a = rows.data(),
                            .a_stride = {weights_.k(), 1},
                            .bias = wide.defined() ? wide.data() : nullptr,
                            .y = y.data(),
                            .y_stride = {weights_.n(), 1},
                            .element = product_element(dtype_),
                            .narrow = dtype_ == Dtype::bf16,
                            .activation = activation},
                           weights_);
  return y;
}

}  // namespace attn
