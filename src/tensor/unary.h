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

/// function(x) of type R, or of x's own for void.
template <typename R, typename T, typename F>
Tensor map_typed(const char* function, const Tensor& x, const Tensor& out, F element) {
  using Result = std::conditional_t<std::is_void_v<R>, T, R>;
  return compute_into(function, out, x.sizes(), dtype_of<Result>, {x}, [&](const Tensor& target) {
    iterate_in_parts(x.sizes(), {operand(target, x.sizes()), operand(x, x.sizes())},
                     [element](char* const* data, const std::int64_t* strides, std::int64_t n) { unary_run<Result, T>(data, strides, n, element); });
  });
}

template <typename R, typename F>
Tensor map(const char* function, const Tensor& x, const Tensor& out, F element) {
  return with_type(x.dtype(), [&]<typename T>(Type<T>) { return map_typed<R, T>(function, x, out, element); });
}

/// function(x) in x's dtype, integers and bool first becoming f32.
template <typename F>
Tensor map_floating(const char* function, const Tensor& x, const Tensor& out, F element) {
  const Tensor floating = as(x, floating_type(x.dtype()));
  switch (floating.dtype()) {
    case Dtype::f64: return map_typed<void, double>(function, floating, out, element);
    case Dtype::bf16: return map_typed<void, bfloat16>(function, floating, out, element);
    case Dtype::f16: return map_typed<void, float16>(function, floating, out, element);
    default: return map_typed<void, float>(function, floating, out, element);
  }
}

}  // namespace attn
