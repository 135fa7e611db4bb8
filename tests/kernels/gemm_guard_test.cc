// tests/kernels/gemm_guard_test.cc: products read and write nothing beyond their operands: each ends where its pages
// end.
#include "kernels/gemm/packed.h"
#include "kernels/gemm/product.h"

#include "support/guarded.h"

#include <gtest/gtest.h>

#include <cstring>
#include <utility>
#include <vector>

namespace attn::kernels {
namespace {

using attn::testing::Guarded;

/// Memory that holds a small number in every type.
struct Filled : Guarded {
  explicit Filled(std::int64_t bytes) : Guarded(static_cast<std::size_t>(bytes)) {
    std::memset(data(), 0x3c, static_cast<std::size_t>(bytes));
  }
};

TEST(GemmGuard, NothingIsTouchedBeyondTheOperands) {
  // of a and b
  std::vector<std::pair<Element, Element>> kinds = {{Element::f32, Element::f32}, {Element::f64, Element::f64}};
  if (multiplies_bf16()) kinds.push_back({Element::bf16, Element::bf16});
  if (multiplies_half_b()) kinds.insert(kinds.end(), {{Element::f32, Element::bf16}, {Element::f32, Element::f16}});
  const auto bytes_of = [](Element element) {
    return std::int64_t{element == Element::f64 ? 8 : element == Element::f32 ? 4 : 2};
  };
  for (const auto& [element, b_element] : kinds) {
    const std::int64_t size = bytes_of(element), b_size = bytes_of(b_element), sum_size = size == 2 ? 4 : size;
    for (const std::int64_t m : {1, 2, 5, 8, 9, 31})
      for (const std::int64_t n : {1, 7, 16, 33, 100})
        for (const std::int64_t k : {1, 3, 16, 33, 257})
          for (int layout = 0; layout < 4; ++layout) {
            const Filled a(m * k * size), b(n * k * b_size), bias(n * sum_size), y(m * n * size);
            GemmProblem p;
            p.m = m;
            p.n = n;
            p.k = k;
            p.a = a.data();
            p.b = b.data();
            p.bias = bias.data();
            p.y = y.data();
            p.element = element;
            p.b_element = b_element;
            p.narrow = element == Element::bf16;
            p.activation = Activation::gelu_tanh;
            p.a_stride[0] = layout & 1 ? 1 : k;
            p.a_stride[1] = layout & 1 ? m : 1;
            p.b_stride[0] = layout & 2 ? 1 : n;
            p.b_stride[1] = layout & 2 ? k : 1;
            p.y_stride[0] = n;
            p.y_stride[1] = 1;
            multiply(p);
            multiply_packed(p, PackedWeights(p));
          }
  }
}

}  // namespace
}  // namespace attn::kernels
