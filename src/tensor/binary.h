// src/tensor/binary.h: defines the common frame of elementwise operations on one operand, or on two that are broadcast.
#pragma once
#include "tensor/build.h"
#include "tensor/elements.h"
#include "tensor/promote.h"

namespace attn {

/// Returns x if it has this dtype, else x converted to it, without gradient history.
inline Tensor as(const Tensor& x, Dtype dtype) { return x.dtype() == dtype ? x : x.detach().to(dtype); }

/// Writes a result to `out`, or to new memory if `out` is undefined, by a call of `write(target)`. If `out` overlaps an
/// input and is not exactly that input, `write` gets other memory, and the result is copied.
using WriteInto = void (*)(void* context, const Tensor& target);
Tensor compute_into(const char* function, const Tensor& out, const Dims& sizes, Dtype dtype,
                    std::initializer_list<const Tensor*> inputs, WriteInto write, void* context);
template <typename Write>
Tensor compute_into(const char* function, const Tensor& out, const Dims& sizes, Dtype dtype,
                    std::initializer_list<const Tensor*> inputs, const Write& write) {
  const WriteInto call = [](void* context, const Tensor& target) { (*static_cast<const Write*>(context))(target); };
  return compute_into(function, out, sizes, dtype, inputs, call, const_cast<Write*>(&write));
}

// Only the inner loop depends on the element function and the types. The code around it is compiled once, in binary.cc
// and elements.cc.

/// Returns the inner loop of a function of two elements. The loop takes elements of `common` (half floats as f32) and
/// returns R, or the type that it takes if R is void.
template <typename R, typename F>
Elements elements_of_pairs(Dtype common, const F& element) {
  Elements result{
      .loop = with_computed(
          common, []<typename C>(Type<C>) { return binary_loop<std::conditional_t<std::is_void_v<R>, C, R>, C, F>(); }),
      .function = &element};
  if constexpr (requires { F::kernel; }) result.kernel = F::kernel;
  return result;
}

/// Sets target = element(a, b). The operands have dtype `common` (the second may be f32 if the first has 16 bits); the
/// target has type R, or `common` if R is void. If the target shares memory with an operand, the two must be the same
/// view.
template <typename R, typename F>
void binary_into(const Tensor& target, const Tensor& a, const Tensor& b, Dtype common, F element) {
  compute_elements(elements_of_pairs<R>(common, element), target, {&a, &b});
}

/// Computes element(a, b) into `out`, or into new memory of the broadcast shape.
Tensor binary(const char* function, const Tensor& a, const Tensor& b, Dtype result, const Tensor& out,
              const Elements& elements);
template <typename R, typename F>
Tensor binary(const char* function, const Tensor& a, const Tensor& b, Dtype common, const Tensor& out, F element) {
  Dtype result = common;
  if constexpr (!std::is_void_v<R>) result = dtype_of<R>;
  return binary(function, a, b, result, out, elements_of_pairs<R>(common, element));
}

/// Applies the loop of `elements` to x, into `out` or new memory.
Tensor unary(const char* function, const Tensor& x, Dtype result, const Tensor& out, const Elements& elements);

/// Returns element(x) with dtype R, or with x's own dtype if R is void.
template <typename R, typename F>
Tensor map(const char* function, const Tensor& x, const Tensor& out, F element) {
  Dtype result = x.dtype();
  if constexpr (!std::is_void_v<R>) result = dtype_of<R>;
  const ElementLoop loop = with_computed(
      x.dtype(), []<typename C>(Type<C>) { return unary_loop<std::conditional_t<std::is_void_v<R>, C, R>, C, F>(); });
  return unary(function, x, result, out, {.loop = loop, .function = &element});
}

/// Returns element(x) in x's dtype; for integers and bool, in f32, to which they are converted first.
template <typename F>
Tensor map_floating(const char* function, const Tensor& x, const Tensor& out, F element) {
  const Tensor floating = as(x, floating_type(x.dtype()));
  const bool wide = floating.dtype() == Dtype::f64;
  return unary(function, floating, floating.dtype(), out,
               {.loop = wide ? unary_loop<double, double, F>() : unary_loop<float, float, F>(), .function = &element});
}

}  // namespace attn
