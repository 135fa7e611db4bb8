// src/kernels/ref/attention_gradient.cc: computes the backward pass in plain loops. This order of operations is the
// definition; every kernel has its bits, except those of bf16 products (bf16_gradient.cc).
#include "kernels/ref/attention_gradient.h"

namespace attn::kernels::ATTN_REF_NAMESPACE {
namespace {

std::size_t scratch_bytes(const AttentionGradient& g) {
  return g.problem.element == Element::f64
             ? sizeof(double) * static_cast<std::size_t>(Step<double>::elements(g.problem))
             : sizeof(float) * static_cast<std::size_t>(Step<float>::elements(g.problem));
}

bool step(const AttentionGradient& g, const Task& rows, const StepOrder& step_order, void* scratch) {
  if (g.problem.element == Element::f64) Step<double>(g, rows, static_cast<double*>(scratch)).all_keys(step_order);
  else Step<float>(g, rows, static_cast<float*>(scratch)).all_keys(step_order);
  return true;
}

}  // namespace

extern const GradientKernel gradient_table;
const GradientKernel gradient_table = {scratch_bytes, step};

}  // namespace attn::kernels::ATTN_REF_NAMESPACE
