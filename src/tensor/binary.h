// src/tensor/binary.h: the frame of every operation on two broadcast operands.
#pragma once
#include "kernels/rows/target.h"
#include "tensor/build.h"
#include "tensor/element.h"
#include "tensor/iterate.h"
#include "tensor/promote.h"

namespace attn {

/// result[i] = function(a[i], b[i]) over one run; B is T, or f32 beside a 16-bit T.
template <typename R, typename T, typename B, typename F>
void binary_run(char* const* data, const std::int64_t* strides, std::int64_t n, F function) {
  const bool contiguous = strides[0] == sizeof(R) && strides[1] == sizeof(T);
  if constexpr (requires { F::kernel; } && std::is_same_v<R, T> && (std::is_same_v<T, float> || std::is_same_v<T, bfloat16>)) {
    const auto& table = kernels::row_kernels();
    const bool one = strides[2] == 0;
    if (table.binary != nullptr && contiguous && (one || (std::is_same_v<B, T> && strides[2] == sizeof(B))))
      return table.binary(F::kernel, is_half<T> ? kernels::Element::bf16 : kernels::Element::f32, data[1], one ? nullptr : data[2],
                          one ? widen(*reinterpret_cast<const B*>(data[2])) : 0, data[0], n);
  }
  if (contiguous && strides[2] == sizeof(B)) {
    R* result = reinterpret_cast<R*>(data[0]);
    const T* a = reinterpret_cast<const T*>(data[1]);
    const B* b = reinterpret_cast<const B*>(data[2]);
    for (std::int64_t i = 0; i < n; ++i) result[i] = convert<R>(function(widen(a[i]), widen(b[i])));
  } else if (contiguous && strides[2] == 0) {
    R* result = reinterpret_cast<R*>(data[0]);
    const T* a = reinterpret_cast<const T*>(data[1]);
    const auto b = widen(*reinterpret_cast<const B*>(data[2]));
    for (std::int64_t i = 0; i < n; ++i) result[i] = convert<R>(function(widen(a[i]), b));
  } else {
    for (std::int64_t i = 0; i < n; ++i) {
      const T a = *reinterpret_cast<const T*>(data[1] + i * strides[1]);
      const B b = *reinterpret_cast<const B*>(data[2] + i * strides[2]);
      *reinterpret_cast<R*>(data[0] + i * strides[0]) = convert<R>(function(widen(a), widen(b)));
    }
  }
}

/// The operand in `dtype`, without history.
inline Tensor as(const Tensor& x, Dtype dtype) { return x.dtype() == dtype ? x : x.detach().to(dtype); }

/// `write(target)` into `out` or new memory; by way of other memory where `out` overlaps an input otherwise than exactly.
using WriteInto = void (*)(void* context, const Tensor& target);
Tensor compute_into(const char* function, const Tensor& out, const Dims& sizes, Dtype dtype, std::initializer_list<const Tensor*> inputs, WriteInto write,
                    void* context);
template <typename Write>
Tensor compute_into(const char* function, const Tensor& out, const Dims& sizes, Dtype dtype, std::initializer_list<const Tensor*> inputs,
                    const Write& write) {
  const WriteInto call = [](void* context, const Tensor& target) { (*static_cast<const Write*>(context))(target); };
  return compute_into(function, out, sizes, dtype, inputs, call, const_cast<Write*>(&write));
}

// All that depends on the element function and the types is a loop; what goes around it stands once, in binary.cc.

/// The loop for operands of dtype `common` (the second may be f32 beside a 16-bit one) and a result of type R, or of `common` for void.
template <typename R, typename F>
InnerLoop binary_loop(Dtype common, Dtype second) {
  return with_type(common, [&]<typename T>(Type<T>) {
    const auto of = []<typename B>(Type<B>) -> InnerLoop {
      return [](void* element, char* const* data, const std::int64_t* strides, std::int64_t n) {
        binary_run<std::conditional_t<std::is_void_v<R>, T, R>, T, B>(data, strides, n, *static_cast<const F*>(element));
      };
    };
    if constexpr (is_half<T>) {
      if (second == Dtype::f32) return of(Type<float>{});
    }
    return of(Type<T>{});
  });
}

/// target = element(a, b) for operands of dtype `common` and a target of type R, or of `common` for void. Memory that overlaps must do
/// so exactly.
void binary_into(const Tensor& target, const Tensor& a, const Tensor& b, InnerLoop loop, void* element);
template <typename R, typename F>
void binary_into(const Tensor& target, const Tensor& a, const Tensor& b, Dtype common, F element) {
  binary_into(target, a, b, binary_loop<R, F>(common, b.dtype()), &element);
}

/// The same into `out` or new memory of the broadcast shape.
Tensor binary(const char* function, const Tensor& a, const Tensor& b, Dtype result, const Tensor& out, InnerLoop loop, void* element);
template <typename R, typename F>
Tensor binary(const char* function, const Tensor& a, const Tensor& b, Dtype common, const Tensor& out, F element) {
  Dtype result = common;
  if constexpr (!std::is_void_v<R>) result = dtype_of<R>;
  return binary(function, a, b, result, out, binary_loop<R, F>(common, b.dtype()), &element);
}

}  // namespace attn
