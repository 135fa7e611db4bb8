// src/kernels/attention/backward.cc: the backward pass of 64 query rows, compiled once for every instruction set.
#include "kernels/attention/gradient.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/backward.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>
#include <limits>

#include "kernels/attention/gradient_walk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

template <typename T>
std::size_t gradient_bytes(const AttentionGradient& g) {
  return GradientStrip<T>::bytes(g.problem);
}
template <typename T>
bool gradient_step(const AttentionGradient& g, const GradientRows& rows, const Turn& turn, void* scratch) {
  return GradientWalk<T>(g, rows, scratch).step(turn);
}
template <typename T>
void gradient_dense(const AttentionGradient& g, const GradientRows& rows, const DenseGradient& to, std::int64_t key_begin, std::int64_t key_end, void* scratch) {
  GradientWalk<T>(g, rows, scratch).dense(to, key_begin, key_end);
}

template <typename T>
constexpr GradientKernel gradient_kernel{gradient_bytes<T>, gradient_step<T>, gradient_dense<T>};

extern const GradientTarget gradient_table;
const GradientTarget gradient_table = {HWY_TARGET == HWY_AVX2 ? "avx2" : HWY_TARGET == HWY_AVX3 ? "avx512" : "neon", gradient_kernel<float>, gradient_kernel<double>};

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
    if (target != nullptr && std::strcmp(target->name, name) == 0) return target;
  return nullptr;
}

}  // namespace attn::kernels
#endif
