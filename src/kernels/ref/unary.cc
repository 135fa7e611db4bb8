// src/kernels/ref/unary.cc: applies the elementary functions to contiguous memory.
#include "kernels/ref/table.h"
#include "kernels/ref/trigonometry.h"

namespace attn::kernels::ATTN_REF_NAMESPACE {
namespace {

template <typename T, typename F>
void each(const void* x, void* y, std::int64_t n, F f) {
  for (std::int64_t i = 0; i < n; ++i) static_cast<T*>(y)[i] = f(static_cast<const T*>(x)[i]);
}

template <typename T>
void apply(Unary op, const void* x, void* y, std::int64_t n) {
  switch (op) {
    case Unary::exp: return each<T>(x, y, n, [](T v) { return exp(v); });
    case Unary::exp2: return each<T>(x, y, n, [](T v) { return exp2(v); });
    case Unary::log: return each<T>(x, y, n, [](T v) { return log(v); });
    case Unary::log2: return each<T>(x, y, n, [](T v) { return log2(v); });
    case Unary::tanh: return each<T>(x, y, n, [](T v) { return tanh(v); });
    case Unary::erf: return each<T>(x, y, n, [](T v) { return erf(v); });
    case Unary::sin: return each<T>(x, y, n, [](T v) { return sin(v); });
    case Unary::cos: return each<T>(x, y, n, [](T v) { return cos(v); });
    case Unary::sigmoid: return each<T>(x, y, n, [](T v) { return sigmoid(v); });
    case Unary::silu: return each<T>(x, y, n, [](T v) { return silu(v); });
    case Unary::gelu_none: return each<T>(x, y, n, [](T v) { return gelu_none(v); });
    case Unary::gelu_tanh: return each<T>(x, y, n, [](T v) { return gelu_tanh(v); });
  }
}

}  // namespace

void unary(Unary op, Element element, const void* x, void* y, std::int64_t n) noexcept {
  if (element == Element::f64) return apply<double>(op, x, y, n);
  apply<float>(op, x, y, n);
}

}  // namespace attn::kernels::ATTN_REF_NAMESPACE
