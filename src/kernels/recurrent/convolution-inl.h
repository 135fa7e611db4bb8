// src/kernels/recurrent/convolution-inl.h: computes a row of the causal depthwise convolution; its elements are the
// lanes.
#if defined(ATTN_CONVOLUTION_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_CONVOLUTION_INL_H
#undef ATTN_CONVOLUTION_INL_H
#else
#define ATTN_CONVOLUTION_INL_H
#endif

#include "kernels/recurrent/state_rows-inl.h"
#include "kernels/rows/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

template <typename T>
HWY_NOINLINE void convolved(const ConvolvedRow& p) {
  const Tag<T> tag;
  constexpr std::int64_t N = lanes<T>;
  const bool shared = p.weight_stride == 0;
  const T *weight = items<T>(p.weight), *bias = items<T>(p.bias);
  for (std::int64_t i = 0; i < p.n; i += N) {
    const std::int64_t count = p.n - i < N ? p.n - i : N;
    auto sum = bias == nullptr ? hn::Zero(tag) : shared ? hn::Set(tag, *bias) : load_some(tag, bias + i, count);
    for (std::int64_t j = 0; j < p.taps; ++j)
      sum = hn::MulAdd(shared ? hn::Set(tag, weight[j]) : load_some(tag, weight + j * p.weight_stride + i, count),
                       load_some(tag, items<T>(p.x[j]) + i, count), sum);
    store_some(tag, canonical(tag, hn::Add(sum, hn::Zero(tag))), items<T>(p.y) + i, count);
  }
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
