// src/kernels/attention/pass/backward_kernels-inl.h: the tables of the kernels of the backward pass for one instruction
// set.
#if defined(ATTN_BACKWARD_KERNELS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_BACKWARD_KERNELS_INL_H
#undef ATTN_BACKWARD_KERNELS_INL_H
#else
#define ATTN_BACKWARD_KERNELS_INL_H
#endif

#include "kernels/attention/backward_problem.h"
#include "kernels/attention/pass/additive_backward_pass-inl.h"
#include "kernels/attention/pass/bf16_backward_pass-inl.h"
#include "kernels/targets.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

template <class W>
std::size_t gradient_bytes(const AttentionGradient& g) {
  return W::bytes(g.problem);
}
template <class W>
bool gradient_step(const AttentionGradient& g, const Task& rows, const StepOrder& step_order, void* memory) {
  Arena arena(memory);
  W pass(g, rows, arena);
  return step_back(pass, step_order);
}
template <class W>
constexpr GradientKernel gradient_kernel{
    .scratch_bytes = gradient_bytes<W>, .step = gradient_step<W>, .clear_keys = W::clear_keys, .draws = true};

#if HWY_TARGET == HWY_AVX3
template <class Products>
constexpr GradientKernel bf16_gradient_kernel() {
  GradientKernel kernel = gradient_kernel<Bf16BackwardPass<Products>>;
  kernel.totals_bytes = [](const AttentionGradient& g, std::int64_t keys) {
    return Bf16Totals(g.problem, keys).bytes();
  };
  kernel.finish = bf16_finish_keys;
  return kernel;
}
#endif

constexpr GradientTarget gradient_target_of(const char* name, const GradientKernel& bf16) {
  return {name,
          gradient_kernel<BackwardPass<float>>,
          gradient_kernel<BackwardPass<double>>,
          gradient_kernel<AdditiveBackwardPass<float>>,
          gradient_kernel<AdditiveBackwardPass<double>>,
          bf16};
}
extern const GradientTarget gradient_table;
#if HWY_TARGET == HWY_AVX3
const GradientTarget gradient_table = gradient_target_of(ATTN_TARGET_NAME, bf16_gradient_kernel<Bf16BackwardPairs>());
extern const GradientTarget amx_gradient_table;
const GradientTarget amx_gradient_table = gradient_target_of("amx", bf16_gradient_kernel<AmxBackwardUnits>());
#else
const GradientTarget gradient_table = gradient_target_of(ATTN_TARGET_NAME, {});
#endif

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
