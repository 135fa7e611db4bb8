// src/kernels/ref/slope.cc: computes dy times the slope of an activation, one rounding per operation.
#include "kernels/ref/math.h"
#include "kernels/ref/table.h"

namespace attn::kernels::ATTN_REF_NAMESPACE {
namespace {

template <typename T>
T slope_at(Slope op, T x) {
  using C = SlopeConstants<T>;
  switch (op) {
    case Slope::tanh: return T(1) - x * x;
    case Slope::sigmoid: return (T(1) - x) * x;
    case Slope::silu: {
      const T s = sigmoid(x);
      return s + x * (s * (T(1) - s));
    }
    case Slope::gelu_none:
      return (erf(x * C::sqrt_half) + T(1)) * T(0.5) + x * (exp((x * x) * T(-0.5)) * C::density_at_0);
    case Slope::gelu_tanh: {
      const T square = x * x, t = tanh((x + square * x * C::gelu_cubic) * C::gelu_scale);
      return (t + T(1)) * T(0.5) +
             (x * T(0.5) * (T(1) - t * t)) * ((square * C::gelu_cubic_slope + T(1)) * C::gelu_scale);
    }
  }
  return x;
}

}  // namespace

void slope(Slope op, Element element, const void* dy, const void* x, void* y, std::int64_t n) noexcept {
  const auto run = [&]<typename T>(T) {
    for (std::int64_t i = 0; i < n; ++i)
      static_cast<T*>(y)[i] = canonical(static_cast<const T*>(dy)[i] * slope_at(op, static_cast<const T*>(x)[i]));
  };
  if (element == Element::f64) return run(double{});
  run(float{});
}

}  // namespace attn::kernels::ATTN_REF_NAMESPACE
