// src/tensor/unary.h: the frame of operations on one operand whose bits are plain IEEE arithmetic.
#pragma once
#include "tensor/binary.h"

namespace attn {

template <typename R, typename T, typename F>
void unary_run(char* const* data, const std::int64_t* strides, std::int64_t n, F function) {
  if (strides[0] == sizeof(R) && strides[1] == sizeof(T)) {
    R* result = reinterpret_cast<R*>(data[0]);
    const T* x = reinterpret_cast<const T*>(data[1]);
    for (std::int64_t i = 0; i < n; ++i) result[i] = convert<R>(function(widen(x[i])));
    return;
  }
  for (std::int64_t i = 0; i < n; ++i)
    *reinterpret_cast<R*>(data[0] + i * strides[0]) = convert<R>(function(widen(*reinterpret_cast<const T*>(data[1] + i * strides[1]))));
}

/// loop(result, x) into `out` or new memory.
Tensor unary(const char* function, const Tensor& x, Dtype result, const Tensor& out, InnerLoop loop, void* element);

/// The loop for an x of type T and a result of type R, or of x's own for void.
template <typename R, typename T, typename F>
InnerLoop unary_loop() {
  return [](void* element, char* const* data, const std::int64_t* strides, std::int64_t n) {
    unary_run<std::conditional_t<std::is_void_v<R>, T, R>, T>(data, strides, n, *static_cast<const F*>(element));
  };
}

/// function(x) of type R, or of x's own for void.
template <typename R, typename F>
Tensor map(const char* function, const Tensor& x, const Tensor& out, F element) {
  Dtype result = x.dtype();
  if constexpr (!std::is_void_v<R>) result = dtype_of<R>;
  const InnerLoop loop = with_type(x.dtype(), []<typename T>(Type<T>) { return unary_loop<R, T, F>(); });
  return unary(function, x, result, out, loop, &element);
}

/// function(x) in x's dtype, integers and bool first becoming f32.
template <typename F>
Tensor map_floating(const char* function, const Tensor& x, const Tensor& out, F element) {
  const Tensor floating = as(x, floating_type(x.dtype()));
  InnerLoop loop = unary_loop<void, float, F>();
  if (floating.dtype() == Dtype::f64) loop = unary_loop<void, double, F>();
  else if (floating.dtype() == Dtype::bf16) loop = unary_loop<void, bfloat16, F>();
  else if (floating.dtype() == Dtype::f16) loop = unary_loop<void, float16, F>();
  return unary(function, floating, floating.dtype(), out, loop, &element);
}

}  // namespace attn
