// src/attention/schedule/backward_plan.cc: chooses the kernel of the backward pass.
#include "attention/schedule/backward_plan.h"

#include <attn/runtime.h>

#include "kernels/attention/normalizer_problem.h"
#include "runtime/cpu.h"
#include "runtime/once.h"

namespace attn {

bool needs_reference(const kernels::AttentionProblem& p) {
  return p.element != kernels::Element::f64 &&
         !(p.score_mod.fits_f32 && (p.score_gradient == nullptr || p.score_gradient->program.fits_f32) &&
           (p.normalization == nullptr || p.normalization->weight_gradient == nullptr ||
            p.normalization->weight_gradient->program.fits_f32));
}

BackwardPlan plan_backward(const kernels::AttentionProblem& problem) {
  constinit static runtime::Once<const kernels::GradientTarget*> here;
  const kernels::GradientTarget* const target =
      here.get([] { return kernels::gradient_target(runtime::target().c_str()); });
  const bool far = needs_reference(problem);
  if (const kernels::Normalization* const normalization = problem.normalization) {
    if (problem.element == kernels::Element::bf16) return {"", nullptr};
    if (normalization->kernel != nullptr && !far) return {target->name, &normalization->kernel->gradient};
    return {"ref", &normalization->reference->gradient};
  }
  if (problem.element == kernels::Element::bf16) {
    if (far || target == nullptr || target->bf16.step == nullptr || !runtime::cpu().avx512_bf16 ||
        problem.score != kernels::ScoreOp::dot)
      return {"", nullptr};
    return {target->name, &target->bf16};
  }
  if (target != nullptr && !far) return {target->name, &target->of(problem)};
  return {"ref", &kernels::gradient_reference()};
}

}  // namespace attn
