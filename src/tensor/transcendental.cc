// src/tensor/transcendental.cc: exp, log, tanh, gelu and their like, in the kernels' own arithmetic: the same bits everywhere.
#include <attn/ops.h>

#include "tensor/blocks.h"
#include "tensor/rows.h"
#include "tensor/slope.h"
#include "tensor/unary.h"

#include <algorithm>
#include <cmath>

namespace attn {
namespace {

using kernels::Unary;

/// A run through the kernel, which wants contiguous f32 or f64: directly where it is so, else by way of a small buffer.
/// `total`: bytes of all results.
template <typename T>
void kernel_run(Unary op, std::int64_t total, char* const* data, const std::int64_t* strides, std::int64_t n) {
  using C = Compute<T>;
  const auto element = std::is_same_v<C, double> ? kernels::Element::f64 : kernels::Element::f32;
  const auto& table = kernels::row_kernels();
  const bool contiguous = !is_half<T> && strides[0] == sizeof(T) && strides[1] == sizeof(T);
  if (contiguous && total < streamed_bytes) return table.unary(op, element, data[1], data[0], n);
  if (contiguous) {  // by way of a buffer that stays in the cache, and past the caches
    constexpr std::int64_t block = 256;
    alignas(64) T y[block];
    for (std::int64_t i = 0; i < n; i += block) {
      const std::int64_t count = std::min(block, n - i);
      table.unary(op, element, reinterpret_cast<const T*>(data[1]) + i, y, count);
      table.stream(y, reinterpret_cast<T*>(data[0]) + i, count * static_cast<std::int64_t>(sizeof(T)));
    }
    table.end_of_streams();
    return;
  }
  in_blocks(n, [&](std::int64_t start, std::int64_t count) {
    alignas(64) C x[block_elements];
    read_block<T>(data[1] + start * strides[1], strides[1], x, count);
    table.unary(op, element, x, x, count);
    write_block<T>(x, data[0] + start * strides[0], strides[0], count);
  });
}

Tensor transcendental(const char* function, Unary op, const Tensor& given, const Tensor& out) {
  const Tensor x = as(given, floating_type(given.dtype()));
  return compute_into(function, out, x.sizes(), x.dtype(), {&x}, [&](const Tensor& target) {
    const auto run = [&]<typename T>(Type<T>) {
      iterate_in_parts(x.sizes(), {operand(target, x.sizes()), operand(x, x.sizes())},
                       [op, total = x.numel() * static_cast<std::int64_t>(sizeof(T))](char* const* data, const std::int64_t* strides, std::int64_t n) {
                         kernel_run<T>(op, total, data, strides, n);
                       });
    };
    switch (x.dtype()) {
      case Dtype::f64: return run(Type<double>{});
      case Dtype::bf16: return run(Type<bfloat16>{});
      case Dtype::f16: return run(Type<float16>{});
      default: return run(Type<float>{});
    }
  });
}

void check_floating(const char* function, const Tensor& x) {
  if (!is_floating(x.dtype()))
    throw DtypeError(std::string(function) + ": x is " + std::string(name_of(x.dtype())) + "; it must be f32, f64, bf16 or f16");
}

constexpr double pi = 3.14159265358979323846;

// Slopes in operations of tensors; kernels/ref/slope.cc has the same steps.

constexpr auto tanh_slope = [](const auto& y) { return 1 - y * y; };
constexpr auto sigmoid_slope = [](const auto& y) { return (1 - y) * y; };

/// s + x s (1 - s), s = sigmoid(x).
constexpr auto silu_slope = [](const auto& x) {
  const auto s = sigmoid(x);
  return s + x * (s * (1 - s));
};

/// Phi(x) + x phi(x), the distribution of a normal variable and its density.
constexpr auto gelu_slope = [](const auto& x) {
  const auto distribution = (erf(x * std::sqrt(0.5)) + 1) * 0.5, density = exp(x * x * -0.5) * (1 / std::sqrt(2 * pi));
  return distribution + x * density;
};

/// (1 + t) / 2 + x/2 (1 - t^2) u', t = tanh(u), u = sqrt(2/pi) (x + 0.044715 x^3).
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
  return record("ErfBackward0", y, wrt(x, [](auto& dy, auto& x) { return dy * (exp(-(widen(x) * widen(x))) * (2 / std::sqrt(pi))); }, x));
}

Tensor tanh(const Tensor& x, Tensor out) {
  const Tensor y = transcendental("tanh", Unary::tanh, x, out);
  return record("TanhBackward0", y, wrt(x, [](auto& dy, auto& y) { return times_slope(dy, y, kernels::Slope::tanh, tanh_slope); }, y));
}

Tensor sigmoid(const Tensor& x, Tensor out) {
  const Tensor y = transcendental("sigmoid", Unary::sigmoid, x, out);
  return record("SigmoidBackward0", y, wrt(x, [](auto& dy, auto& y) { return times_slope(dy, y, kernels::Slope::sigmoid, sigmoid_slope); }, y));
}

Tensor silu(const Tensor& x, Tensor out) {
  check_floating("silu", x);
  return record("SiluBackward0", transcendental("silu", Unary::silu, x, out), wrt(x, [](auto& dy, auto& x) { return times_slope(dy, x, kernels::Slope::silu, silu_slope); }, x));
}

Tensor gelu(const Tensor& x, GeluApproximate approximate, Tensor out) {
  check_floating("gelu", x);
  const Unary op = approximate == GeluApproximate::tanh ? Unary::gelu_tanh : Unary::gelu_none;
  const auto vjp = [approximate](auto& dy, auto& x) {
    return approximate == GeluApproximate::tanh ? times_slope(dy, x, kernels::Slope::gelu_tanh, gelu_tanh_slope) : times_slope(dy, x, kernels::Slope::gelu_none, gelu_slope);
  };
  return record("GeluBackward0", transcendental("gelu", op, x, out), wrt(x, vjp, x));
}

Tensor Tensor::exp() const { return attn::exp(*this); }
Tensor Tensor::tanh() const { return attn::tanh(*this); }

}  // namespace attn
