// src/tensor/elements.h: applies a function of elements to whole tensors of any dtypes and strides.
#pragma once
#include "kernels/rows/target.h"
#include "tensor/element.h"
#include "tensor/iterate.h"

#include <array>
#include <optional>

// Precedes a loop whose iterations are independent: y[i] depends only on x[i], and y may be x. GCC then vectorises the
// loop without a check for overlap.
#if defined(__GNUC__) && !defined(__clang__)
#define ATTN_INDEPENDENT _Pragma("GCC ivdep")
#else
#define ATTN_INDEPENDENT
#endif

namespace attn {

/// Computes y[i] = function(x[0][i], x[1][i], ...) for n contiguous elements, in arrays of the type of the computation.
/// y may be one of the x.
using ElementLoop = void (*)(const void* function, const void* const* x, void* y, std::int64_t n);

struct Elements {
  ElementLoop loop = nullptr;
  const void* function = nullptr;
  bool words = false;  // the loop takes half floats without conversion
  // a kernel that computes the same for contiguous f32, f64 or bf16
  std::optional<kernels::Binary> kernel = std::nullopt;
};

/// Sets target = loop(inputs), with each input broadcast to the target's shape. Large targets are divided among
/// threads. Half floats and elements that are not contiguous are copied to blocks that fit in L1. If the target shares
/// memory with an input, the two must be the same view (same address, sizes and strides).
void compute_elements(const Elements& elements, const Tensor& target, std::initializer_list<const Tensor*> inputs);

/// Calls function(Type<C>{}) with the type C in which elements of `dtype` are computed.
template <typename F>
decltype(auto) with_computed(Dtype dtype, F&& function) {
  switch (dtype) {
    case Dtype::f64: return function(Type<double>{});
    case Dtype::i64: return function(Type<std::int64_t>{});
    case Dtype::i32: return function(Type<std::int32_t>{});
    case Dtype::boolean: return function(Type<bool>{});
    default: return function(Type<float>{});
  }
}

/// Return the loop of a function of one or two elements of type C with results of type R.
template <typename R, typename C, typename F>
ElementLoop unary_loop() {
  return [](const void* context, const void* const* x, void* y, std::int64_t n) {
    const F function = *static_cast<const F*>(context);
    const C* a = static_cast<const C*>(x[0]);
    R* result = static_cast<R*>(y);
    ATTN_INDEPENDENT
    for (std::int64_t i = 0; i < n; ++i) result[i] = function(a[i]);
  };
}
template <typename R, typename C, typename F>
ElementLoop binary_loop() {
  return [](const void* context, const void* const* x, void* y, std::int64_t n) {
    const F function = *static_cast<const F*>(context);
    const C *a = static_cast<const C*>(x[0]), *b = static_cast<const C*>(x[1]);
    R* result = static_cast<R*>(y);
    ATTN_INDEPENDENT
    for (std::int64_t i = 0; i < n; ++i) result[i] = function(a[i], b[i]);
  };
}

}  // namespace attn
