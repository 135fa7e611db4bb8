// src/kernels/attention/backward.cc: the kernels that share the tiles of the backward pass: backward itself, other
// normalizers than softmax, and forward mode; compiled once for every instruction set. One file, because the tiles,
// the modifiers of scores and their derivatives take most of the compiler's time.
#include "kernels/attention/backward_problem.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/backward.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>
#include <limits>

#include "kernels/attention/pass/backward_kernels-inl.h"
#include "kernels/attention/pass/normalizer_kernels-inl.h"
#include "kernels/attention/pass/tangent_kernels-inl.h"
#include "kernels/reference_builds.h"
#include "kernels/targets.h"
#include "runtime/cpu.h"

#if HWY_ONCE
namespace attn::kernels {

const GradientTarget* gradient_target(const char* name) noexcept {
  return find_table<GradientTarget>({ATTN_AMX_TABLE(amx_gradient_table) ATTN_TABLES(gradient_table)}, name);
}

const NormalizerTarget* normalizer_target(const char* name) noexcept {
  return find_table<NormalizerTarget>({ATTN_TABLES(normalizer_table)}, runtime::vectors_of(name));
}
const TangentTarget* tangent_target(const char* name) noexcept {
  return find_table<TangentTarget>({ATTN_TABLES(tangent_table)}, runtime::vectors_of(name));
}

ATTN_DECLARE_IN_BUILDS(NormalizerKernel, normalizer_kernel)
ATTN_DECLARE_IN_BUILDS(TangentKernel, tangent_kernel)
ATTN_DECLARE_IN_BUILDS(GradientKernel, gradient_tangent_kernel)

const NormalizerKernel& normalizer_reference(const Reference& build) noexcept {
  return ATTN_OF_BUILD(build, normalizer_kernel);
}
const TangentKernel& tangent_reference(const Reference& build) noexcept { return ATTN_OF_BUILD(build, tangent_kernel); }
const GradientKernel& gradient_tangent_reference(const Reference& build) noexcept {
  return ATTN_OF_BUILD(build, gradient_tangent_kernel);
}

}  // namespace attn::kernels
#endif
