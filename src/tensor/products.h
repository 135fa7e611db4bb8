// src/tensor/products.h: products with what follows them in one pass, for modules that run without gradients.
#pragma once
#include <attn/tensor.h>

#include "kernels/reference.h"

namespace attn {

/// activation(linear(x, weight, bias)), the same bits as one after the other, without history.
Tensor linear_activated(const Tensor& x, const Tensor& weight, const Tensor& bias, kernels::Activation activation);

}  // namespace attn
