// src/kernels/attention/pass/normalizer_kernels-inl.h: the table of the kernels of other normalizers than softmax and
// of functions of the weight, forward and backward, for one instruction set.
#if defined(ATTN_NORMALIZER_KERNELS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_NORMALIZER_KERNELS_INL_H
#undef ATTN_NORMALIZER_KERNELS_INL_H
#else
#define ATTN_NORMALIZER_KERNELS_INL_H
#endif

#include "kernels/attention/normalizer_problem.h"
#include "kernels/attention/pass/normalizer_backward_pass-inl.h"
#include "kernels/attention/pass/normalizer_forward_pass-inl.h"
#include "kernels/targets.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// The call as the forward pass reads it. The scratch of a backward pass holds the values of an expression only if
/// there are derivatives; here there are none to compute.
inline AttentionGradient forward_call(const AttentionProblem& p) {
  static constexpr ScoreGradient none;
  AttentionGradient g;
  g.problem = p;
  if (!p.score_mod.empty()) g.problem.score_gradient = &none;
  return g;
}

template <typename T, class Base>
std::size_t normalizer_bytes(const AttentionProblem& p) {
  return NormalizerForward<T, Base>::bytes(forward_call(p).problem);
}
template <typename T, class Base>
bool normalizer_rows(const AttentionProblem& p, const Task& tile, void* memory) {
  const AttentionGradient g = forward_call(p);
  Arena arena(memory);
  return NormalizerForward<T, Base>(g, tile, arena).run();
}
template <typename T, class Base>
bool normalizer_step(const AttentionGradient& g, const Task& rows, const StepOrder& step_order, void* memory) {
  Arena arena(memory);
  return NormalizerBackward<T, Base>(g, rows, step_order, arena).step();
}
template <typename T, class Base>
constexpr NormalizerKernel normalizer_kernel{.scratch_bytes = normalizer_bytes<T, Base>,
                                             .rows = normalizer_rows<T, Base>,
                                             .gradient = {.scratch_bytes = NormalizerBackward<T, Base>::bytes,
                                                          .step = normalizer_step<T, Base>,
                                                          .clear_keys = Base::clear_keys,
                                                          .draws = true}};

extern const NormalizerTarget normalizer_table;
const NormalizerTarget normalizer_table = {
    ATTN_TARGET_NAME, normalizer_kernel<float, BackwardPass<float>>, normalizer_kernel<double, BackwardPass<double>>,
    normalizer_kernel<float, AdditiveBackwardPass<float>>, normalizer_kernel<double, AdditiveBackwardPass<double>>};

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
