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
template <typename Write>
Tensor compute_into(const char* function, const Tensor& out, const Dims& sizes, Dtype dtype, std::initializer_list<Tensor> inputs,
                    Write&& write) {
  Tensor result = result_memory(function, out, sizes, dtype);
  bool aside = false;
  if (out.defined())
    for (const Tensor& input : inputs) aside |= overlaps(out, input);
  if (!aside) {
    write(result);
    return result;
  }
  const Tensor other = result_memory(function, {}, sizes, dtype);
  write(other);
  copy_values(result, other);
  return result;
}

/// target = element(a, b) for operands of dtype `common` (b may be f32 beside a 16-bit one) and a target of type R, or of
/// `common` for void. Memory that overlaps must do so exactly.
template <typename R, typename F>
void binary_into(const Tensor& target, const Tensor& a, const Tensor& b, Dtype common, F element) {
  const Dims& sizes = target.sizes();
  with_type(common, [&]<typename T>(Type<T>) {
    using Result = std::conditional_t<std::is_void_v<R>, T, R>;
    const auto run = [&]<typename B>(Type<B>) {
      iterate_in_parts(sizes, {operand(target, sizes), operand(a, sizes), operand(b, sizes)},
                       [element](char* const* data, const std::int64_t* strides, std::int64_t n) {
                         binary_run<Result, T, B>(data, strides, n, element);
                       });
    };
    if constexpr (is_half<T>) {
      if (b.dtype() == Dtype::f32) return run(Type<float>{});
    }
    run(Type<T>{});
  });
}

/// The same into `out` or new memory of the broadcast shape.
template <typename R, typename F>
Tensor binary(const char* function, const Tensor& a, const Tensor& b, Dtype common, const Tensor& out, F element) {
  Dtype dtype = common;
  if constexpr (!std::is_void_v<R>) dtype = dtype_of<R>;
  return compute_into(function, out, broadcast_shapes(function, a.sizes(), b.sizes()), dtype, {a, b},
                      [&](const Tensor& target) { binary_into<R>(target, a, b, common, element); });
}

}  // namespace attn
