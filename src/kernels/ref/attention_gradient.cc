// src/kernels/ref/attention_gradient.cc: computes the backward pass in plain loops. This order of operations is the
// definition; every kernel has its bits, except those of bf16 products (bf16_gradient.cc).
#include "kernels/ref/attention_gradient.h"

namespace attn::kernels::ATTN_REF_NAMESPACE {
template <typename T>
using PlainStep = Step<T>;

extern const GradientKernel gradient_table;
const GradientKernel gradient_table = step_kernel<PlainStep>();

}  // namespace attn::kernels::ATTN_REF_NAMESPACE
