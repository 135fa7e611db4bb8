// src/tensor/slope.cc: multiplies dy by the derivative of an activation in one pass over memory.
#include "tensor/slope.h"

#include <attn/ops.h>

#include "tensor/elements.h"

namespace attn {

Tensor times_slope(const Tensor& dy, const Tensor& x, kernels::Slope op) {
  const Tensor result = empty(x.sizes(), x.dtype());
  const auto of = [&]<typename C>(Type<C>) {
    constexpr auto element = sizeof(C) == 8 ? kernels::Element::f64 : kernels::Element::f32;
    const ElementLoop loop = [](const void* op, const void* const* in, void* y, std::int64_t n) {
      kernels::row_kernels().slope(*static_cast<const kernels::Slope*>(op), element, in[0], in[1], y, n);
    };
    compute_elements({.loop = loop, .function = &op}, result, {&dy, &x});
  };
  x.dtype() == Dtype::f64 ? of(Type<double>{}) : of(Type<float>{});
  return result;
}

}  // namespace attn
