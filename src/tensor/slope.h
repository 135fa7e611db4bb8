// src/tensor/slope.h: a derivative written once and evaluated twice: over tensors, to be differentiated again, or in one pass, block by block.
#pragma once
#include <attn/autograd.h>

#include "kernels/rows/target.h"
#include "tensor/record.h"

#include <algorithm>

namespace attn {

/// A few elements with the operations of tensors, and their bits: temporaries that stay in the first cache.
template <typename C>
struct Block {
  static constexpr std::int64_t most = 512;
  std::int64_t n;
  alignas(64) C v[most];

  explicit Block(std::int64_t n) : n(n) {}
  template <typename F>
  static Block of(std::int64_t n, F&& element) {
    Block result(n);
    if (n == most) {  // a count the compiler knows: it takes vectors
      for (std::int64_t i = 0; i < most; ++i) result.v[i] = element(i);
    } else {
      for (std::int64_t i = 0; i < n; ++i) result.v[i] = element(i);
    }
    return result;
  }
  friend Block operator+(const Block& a, const Block& b) { return of(a.n, [&](std::int64_t i) { return a.v[i] + b.v[i]; }); }
  friend Block operator*(const Block& a, const Block& b) { return of(a.n, [&](std::int64_t i) { return a.v[i] * b.v[i]; }); }
  friend Block operator+(const Block& a, double b) { return of(a.n, [&](std::int64_t i) { return a.v[i] + static_cast<C>(b); }); }
  friend Block operator*(const Block& a, double b) { return of(a.n, [&](std::int64_t i) { return a.v[i] * static_cast<C>(b); }); }
  friend Block operator-(double a, const Block& b) { return of(b.n, [&](std::int64_t i) { return static_cast<C>(a) - b.v[i]; }); }
  friend Block apply(kernels::Unary op, const Block& x) {
    Block result(x.n);
    kernels::row_kernels().unary(op, std::is_same_v<C, double> ? kernels::Element::f64 : kernels::Element::f32, x.v, result.v, x.n);
    return result;
  }
  friend Block exp(const Block& x) { return apply(kernels::Unary::exp, x); }
  friend Block erf(const Block& x) { return apply(kernels::Unary::erf, x); }
  friend Block tanh(const Block& x) { return apply(kernels::Unary::tanh, x); }
  friend Block sigmoid(const Block& x) { return apply(kernels::Unary::sigmoid, x); }
};

/// slope[i] = f(x[i]) for n <= Block::most elements.
template <typename C>
using SlopeOfBlock = void (*)(const C* x, C* slope, std::int64_t n);
/// dy * slope(x) in x's dtype, rounded once.
Tensor times_slope(const Tensor& dy, const Tensor& x, SlopeOfBlock<float> f32, SlopeOfBlock<double> f64);

/// dy * slope(x), for a `slope` that takes a Tensor or a Block: the same bits either way.
template <typename F>
Tensor times_slope(const Tensor& dy, const Tensor& x, F slope) {
  if (grad_enabled()) return widen(dy) * slope(widen(x));
  const auto of_block = []<typename C>(const C* x, C* y, std::int64_t n) {
    const Block<C> result = F{}(Block<C>::of(n, [&](std::int64_t i) { return x[i]; }));
    std::copy_n(result.v, n, y);
  };
  return times_slope(dy, x, SlopeOfBlock<float>(of_block), SlopeOfBlock<double>(of_block));
}

}  // namespace attn
