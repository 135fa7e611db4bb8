// src/kernels/attention/pass/tangent_kernels-inl.h: the table of the kernels of forward mode for one instruction set:
// the tangents of 64 query rows, and those of their gradients.
#if defined(ATTN_TANGENT_KERNELS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_TANGENT_KERNELS_INL_H
#undef ATTN_TANGENT_KERNELS_INL_H
#else
#define ATTN_TANGENT_KERNELS_INL_H
#endif

#include "kernels/attention/pass/gradient_tangent_pass-inl.h"
#include "kernels/attention/pass/tangent_pass-inl.h"
#include "kernels/attention/tangent_problem.h"
#include "kernels/targets.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

template <typename T>
std::size_t tangent_bytes(const AttentionTangent& t) {
  return BackwardPass<T>::bytes(t.call.problem);
}
template <typename T>
bool tangent_rows(const AttentionTangent& t, const Task& rows, void* memory) {
  Arena arena(memory);
  return TangentPass<T>(t, rows, arena).run();
}
template <typename T>
constexpr TangentKernel tangent_kernel{.scratch_bytes = tangent_bytes<T>, .rows = tangent_rows<T>, .draws = true};

template <typename T>
std::size_t gradient_tangent_bytes(const AttentionGradient& g) {
  return GradientTangentPass<T>::bytes(g.problem);
}
template <typename T>
bool gradient_tangent_step(const AttentionGradient& g, const Task& rows, const StepOrder& step_order, void* memory) {
  Arena arena(memory);
  GradientTangentPass<T> pass(g, rows, arena);
  return step_back(pass, step_order);
}
template <typename T>
constexpr GradientKernel gradient_tangent_kernel{.scratch_bytes = gradient_tangent_bytes<T>,
                                                 .step = gradient_tangent_step<T>,
                                                 .clear_keys = GradientTangentPass<T>::clear_keys,
                                                 .draws = true};

extern const TangentTarget tangent_table;
const TangentTarget tangent_table = {ATTN_TARGET_NAME, tangent_kernel<float>, tangent_kernel<double>,
                                     gradient_tangent_kernel<float>, gradient_tangent_kernel<double>};

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
