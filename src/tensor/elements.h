// src/tensor/elements.h: a function of elements over whole tensors, whatever their dtypes and strides.
#pragma once
#include "kernels/rows/target.h"
#include "tensor/element.h"
#include "tensor/iterate.h"

#include <array>
#include <optional>

// Before a loop whose iterations do not meet (y[i] is made of x[i] alone, also where y is x): GCC turns it into vectors
// without asking first whether the arrays overlap.
#if defined(__GNUC__) && !defined(__clang__)
#define ATTN_INDEPENDENT _Pragma("GCC ivdep")
#else
#define ATTN_INDEPENDENT
#endif

namespace attn {

/// y[i] = function(x[0][i], x[1][i], ...) for n neighbours in arrays of the types that are computed in. y may be one of
/// x.
using ElementLoop = void (*)(const void* function, const void* const* x, void* y, std::int64_t n);

struct Elements {
  ElementLoop loop = nullptr;
  const void* function = nullptr;
  bool words = false;                                    // half floats stay as they are
  std::optional<kernels::Binary> kernel = std::nullopt;  // that does the same over neighbours of f32, f64 or bf16
};

/// target = loop(inputs), each broadcast to the target's shape, in parts that threads share. Half floats and what does
/// not lie side by side go through blocks that stay in the first cache. Memory that overlaps must do so exactly.
void compute_elements(const Elements& elements, const Tensor& target, std::initializer_list<const Tensor*> inputs);

/// Calls function(Type<C>{}) with the type that elements of `dtype` are computed in.
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

/// The loops of a function of one or two elements of type C, whose results are R.
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
