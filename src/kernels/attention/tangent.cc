// src/kernels/attention/tangent.cc: computes the tangents of 64 query rows, and those of their gradients; compiled once
// for every instruction set.
#include "kernels/attention/tangent_problem.h"

#include <string_view>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/tangent.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>
#include <limits>

#include "kernels/attention/pass/gradient_tangent_pass-inl.h"
#include "kernels/attention/pass/tangent_pass-inl.h"
#include "kernels/reference_builds.h"
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

#if HWY_ONCE
namespace attn::kernels {

const TangentTarget* tangent_target(const char* name) noexcept {
  return find_table<TangentTarget>({ATTN_TABLES(tangent_table)}, name == std::string_view("amx") ? "avx512" : name);
}

ATTN_DECLARE_IN_BUILDS(TangentKernel, tangent_kernel)
ATTN_DECLARE_IN_BUILDS(GradientKernel, gradient_tangent_kernel)

const TangentKernel& tangent_reference(const Reference& build) noexcept { return ATTN_OF_BUILD(build, tangent_kernel); }
const GradientKernel& gradient_tangent_reference(const Reference& build) noexcept {
  return ATTN_OF_BUILD(build, gradient_tangent_kernel);
}

}  // namespace attn::kernels
#endif
