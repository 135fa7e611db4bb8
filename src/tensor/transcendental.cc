// src/tensor/transcendental.cc: computes exp, log, tanh, gelu and similar functions with the kernels' arithmetic, so
// that the bits are the same everywhere.
#include <attn/ops.h>

#include "runtime/enum_value.h"
#include "tensor/binary.h"
#include "tensor/rows.h"
#include "tensor/slope.h"

#include <algorithm>
#include <cmath>

namespace attn {
namespace {

using kernels::Unary;

/// Calls a kernel for contiguous elements. With past_caches, results go through a buffer that stays in the cache and
/// are then written by stores that bypass the caches.
struct Kernel {
  Unary op;
  bool past_caches;
};

template <typename C>
void run_kernel(const void* context, const void* const* in, void* y, std::int64_t n) {
  const auto& [op, past_caches] = *static_cast<const Kernel*>(context);
  constexpr auto element = sizeof(C) == 8 ? kernels::Element::f64 : kernels::Element::f32;
  const auto& table = kernels::row_kernels();
  if (!past_caches) return table.unary(op, element, in[0], y, n);
  constexpr std::int64_t block = 256;
  alignas(64) C buffer[block];
  for (std::int64_t i = 0; i < n; i += block) {
    const std::int64_t count = std::min(block, n - i);
    table.unary(op, element, static_cast<const C*>(in[0]) + i, buffer, count);
    table.stream(buffer, static_cast<C*>(y) + i, count * static_cast<std::int64_t>(sizeof(C)));
  }
  table.end_of_streams();
}

Tensor transcendental(const char* function, Unary op, const Tensor& given, const Tensor& out) {
  const Tensor x = as(given, floating_type(given.dtype()));
  return compute_into(function, out, x.sizes(), x.dtype(), {&x}, [&](const Tensor& target) {
    const bool direct = compute_dtype(x.dtype()) == x.dtype() && x.is_contiguous() && target.is_contiguous();
    const Kernel kernel{op, direct && x.numel() * static_cast<std::int64_t>(size_of(x.dtype())) >= streamed_bytes};
    compute_elements({.loop = x.dtype() == Dtype::f64 ? run_kernel<double> : run_kernel<float>, .function = &kernel},
                     target, {&x});
  });
}

constexpr double pi = 3.14159265358979323846;

// The derivatives as tensor operations; kernels/ref/slope.cc computes the same steps.

constexpr auto tanh_slope = [](const auto& y) { return 1 - y * y; };
constexpr auto sigmoid_slope = [](const auto& y) { return (1 - y) * y; };

/// Computes s + x s (1 - s), s = sigmoid(x).
constexpr auto silu_slope = [](const auto& x) {
  const auto s = sigmoid(x);
  return s + x * (s * (1 - s));
};

/// Computes Phi(x) + x phi(x), with the distribution function Phi and the density phi of a normal variable.
constexpr auto gelu_slope = [](const auto& x) {
  const auto distribution = (erf(x * std::sqrt(0.5)) + 1) * 0.5, density = exp(x * x * -0.5) * (1 / std::sqrt(2 * pi));
  return distribution + x * density;
};

/// Computes (1 + t) / 2 + x/2 (1 - t^2) u', t = tanh(u), u = sqrt(2/pi) (x + 0.044715 x^3).
constexpr auto gelu_tanh_slope = [](const auto& x) {
  const double c = std::sqrt(2 / pi);
  const auto square = x * x, t = tanh((x + square * x * 0.044715) * c);
  return (t + 1) * 0.5 + x * 0.5 * (1 - t * t) * ((square * (3 * 0.044715) + 1) * c);
};

}  // namespace

Tensor exp(const Tensor& x, Tensor out) {
  const Tensor y = transcendental("exp", Unary::exp, x, out);
  return record("ExpBackward0", y, wrt(x, [](auto& dy, auto& y) { return dy * y; }, y));
}

Tensor log(const Tensor& x, Tensor out) {
  const Tensor y = transcendental("log", Unary::log, x, out);
  return record("LogBackward0", y, wrt(x, [](auto& dy, auto& x) { return dy / x; }, x));
}

Tensor sin(const Tensor& x, Tensor out) {
  const Tensor y = transcendental("sin", Unary::sin, x, out);
  return record("SinBackward0", y, wrt(x, [](auto& dy, auto& x) { return dy * cos(widen(x)); }, x));
}

Tensor cos(const Tensor& x, Tensor out) {
  const Tensor y = transcendental("cos", Unary::cos, x, out);
  return record("CosBackward0", y, wrt(x, [](auto& dy, auto& x) { return dy * -sin(widen(x)); }, x));
}

Tensor erf(const Tensor& x, Tensor out) {
  const Tensor y = transcendental("erf", Unary::erf, x, out);
  return record("ErfBackward0", y,
                wrt(x, [](auto& dy, auto& x) { return dy * (exp(-(widen(x) * widen(x))) * (2 / std::sqrt(pi))); }, x));
}

Tensor tanh(const Tensor& x, Tensor out) {
  const Tensor y = transcendental("tanh", Unary::tanh, x, out);
  return record("TanhBackward0", y,
                wrt(x, [](auto& dy, auto& y) { return times_slope(dy, y, kernels::Slope::tanh, tanh_slope); }, y));
}

Tensor sigmoid(const Tensor& x, Tensor out) {
  const Tensor y = transcendental("sigmoid", Unary::sigmoid, x, out);
  return record(
      "SigmoidBackward0", y,
      wrt(x, [](auto& dy, auto& y) { return times_slope(dy, y, kernels::Slope::sigmoid, sigmoid_slope); }, y));
}

Tensor silu(const Tensor& x, Tensor out) {
  check_floating_point("silu", x);
  return record("SiluBackward0", transcendental("silu", Unary::silu, x, out),
                wrt(x, [](auto& dy, auto& x) { return times_slope(dy, x, kernels::Slope::silu, silu_slope); }, x));
}

Tensor gelu(const Tensor& x, GeluApproximate approximate, Tensor out) {
  check_floating_point("gelu", x);
  runtime::check_enum(approximate, GeluApproximate::tanh, "gelu: approximate");
  const Unary op = approximate == GeluApproximate::tanh ? Unary::gelu_tanh : Unary::gelu_none;
  const auto vjp = [approximate](auto& dy, auto& x) {
    return approximate == GeluApproximate::tanh ? times_slope(dy, x, kernels::Slope::gelu_tanh, gelu_tanh_slope)
                                                : times_slope(dy, x, kernels::Slope::gelu_none, gelu_slope);
  };
  return record("GeluBackward0", transcendental("gelu", op, x, out), wrt(x, vjp, x));
}

Tensor Tensor::exp() const { return attn::exp(*this); }
Tensor Tensor::tanh() const { return attn::tanh(*this); }

}  // namespace attn
