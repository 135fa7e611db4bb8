// src/kernels/attention/backward.cc: the backward pass of 64 query rows, compiled once for every instruction set.
#include "kernels/attention/gradient.h"
#include "runtime/cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/backward.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>
#include <limits>

#include "kernels/attention/bf16_gradient_walk-inl.h"
#include "kernels/attention/gradient_additive-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

template <class W>
std::size_t gradient_bytes(const AttentionGradient& g) {
  return W::bytes(g.problem);
}
template <class W>
bool gradient_step(const AttentionGradient& g, const GradientRows& rows, const Turn& turn, void* scratch) {
  W walk(g, rows, scratch);
  return step_back(walk, turn);
}
template <class W>
constexpr GradientKernel gradient_kernel{.scratch_bytes = gradient_bytes<W>, .step = gradient_step<W>, .clear_keys = W::clear_keys, .draws = true};

#if HWY_TARGET == HWY_AVX3
constexpr GradientKernel bf16_gradient_kernel() {
  GradientKernel kernel = gradient_kernel<Bf16GradientWalk>;
  kernel.totals_bytes = [](const AttentionGradient& g, std::int64_t keys) { return Bf16Totals(g.problem, keys).bytes(); };
  kernel.finish = bf16_finish_unit;
  return kernel;
}
#else
constexpr GradientKernel bf16_gradient_kernel() { return {}; }
#endif

extern const GradientTarget gradient_table;
const GradientTarget gradient_table = {HWY_TARGET == HWY_AVX2 ? "avx2" : HWY_TARGET == HWY_AVX3 ? "avx512" : "neon", gradient_kernel<GradientWalk<float>>,
                                       gradient_kernel<GradientWalk<double>>, gradient_kernel<AdditiveGradientWalk<float>>,
                                       gradient_kernel<AdditiveGradientWalk<double>>, bf16_gradient_kernel()};

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attn::kernels {

const GradientTarget* gradient_target(const char* name) noexcept {
  const GradientTarget* const built[] = {
#if HWY_TARGETS & HWY_AVX3
      &N_AVX3::gradient_table,
#endif
#if HWY_TARGETS & HWY_AVX2
      &N_AVX2::gradient_table,
#endif
#if HWY_TARGETS & HWY_NEON
      &N_NEON::gradient_table,
#endif
      nullptr};
  for (const GradientTarget* target : built)
    if (target != nullptr && runtime::vectors_of(name) == target->name) return target;
  return nullptr;
}

}  // namespace attn::kernels
#endif
