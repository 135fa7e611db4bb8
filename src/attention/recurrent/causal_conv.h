// src/attention/recurrent/causal_conv.h: declares the gradients of the causal convolution in one pass.
#pragma once
#include <attn/linear_attention.h>

namespace attn {

/// The gradients of the output alone; half floats: that of x in its dtype, the others in f32. Records nothing.
CausalConvGradients conv_gradients_of_output(const Tensor& x, const Tensor& weight, const CausalConvOptions& options,
                                             const Tensor& grad_output);

}  // namespace attn
