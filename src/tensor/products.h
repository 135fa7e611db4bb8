// src/tensor/products.h: declares products with an activation in one pass, for modules that run without gradients.
#pragma once
#include <attn/tensor.h>

#include "kernels/reference.h"

namespace attn {

/// Computes activation(linear(x, weight, bias)) with the same bits as the two calls, without gradient history.
Tensor linear_activated(const Tensor& x, const Tensor& weight, const Tensor& bias, kernels::Activation activation);

}  // namespace attn
