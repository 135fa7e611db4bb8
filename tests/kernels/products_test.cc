// tests/kernels/products_test.cc: products and rows of the specification: both builds, the definition, and the truth in
// long double.
#include "kernels/reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace attn::kernels {
namespace {

template <typename T>
constexpr Element element_of = sizeof(T) == 4 ? Element::f32 : Element::f64;

template <typename T>
std::vector<T> normal(std::int64_t n, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<T> x(static_cast<std::size_t>(n));
  for (T& v : x) {
    double sum = 0;
    for (int i = 0; i < 4; ++i) sum += static_cast<double>(random() >> 11) * 0x1p-53 - 0.5;
    v = static_cast<T>(sum * std::sqrt(3.0));
  }
  return x;
}

template <typename T>
struct Product {
  std::int64_t m, n, k;
  std::vector<T> a, b, bias, y;
  Product(std::int64_t rows, std::int64_t columns, std::int64_t inner)
      : m(rows), n(columns), k(inner), a(normal<T>(m * k, 1)), b(normal<T>(n * k, 2)), bias(normal<T>(n, 3)),
        y(static_cast<std::size_t>(m * n)) {}
  /// b is [n, k] in memory: y = a b^T + bias.
  std::vector<T> run(const Reference& table, std::int64_t begin, std::int64_t end) {
    std::fill(y.begin(), y.end(), T(-7));
    table.gemm({.m = m,
                .n = n,
                .k = k,
                .a = a.data(),
                .a_stride = {k, 1},
                .b = b.data(),
                .b_stride = {1, k},
                .bias = bias.data(),
                .y = y.data(),
                .y_stride = {n, 1},
                .element = element_of<T>},
               begin, end);
    return y;
  }
};

template <typename T>
class Products : public ::testing::Test {};
using Floats = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Products, Floats);

TYPED_TEST(Products, AreTheDefinitionInEveryRowCount) {
  using T = TypeParam;
  for (const std::int64_t k : {1, 5, 255, 256, 257, 768})
    for (const std::int64_t m : {1, 2, 3, 8, 39, 40}) {
      Product<T> p(m, 35, k);
      const auto y = p.run(reference(), 0, m);
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < p.n; ++j) {
          T total = 0;
          long double truth = p.bias[static_cast<std::size_t>(j)], size = std::abs(truth);
          for (std::int64_t start = 0; start < k; start += 256) {
            T chain = 0;
            for (std::int64_t d = start; d < std::min(k, start + 256); ++d) {
              const T x = p.a[static_cast<std::size_t>(i * k + d)], w = p.b[static_cast<std::size_t>(j * k + d)];
              chain = std::fma(x, w, chain);
              truth += static_cast<long double>(x) * w;
              size += std::abs(static_cast<long double>(x) * w);
            }
            total += chain;
          }
          const T ours = y[static_cast<std::size_t>(i * p.n + j)];
          ASSERT_EQ(ours, total + p.bias[static_cast<std::size_t>(j)]) << m << " " << k;
          ASSERT_LE(std::abs(ours - truth), 16 * std::numeric_limits<T>::epsilon() * size);
        }
    }
}

TYPED_TEST(Products, BothBuildsAndAnyCutOfTheRowsGiveTheSameBits) {
  using T = TypeParam;
  Product<T> p(40, 67, 300);
  const auto whole = p.run(reference(), 0, 40);
  EXPECT_EQ(p.run(*reference_generic(), 0, 40), whole);
  for (std::int64_t row = 0; row < 40; ++row) {
    const auto part = p.run(reference(), row, row + 1);
    for (std::int64_t i = 0; i < 40 * 67; ++i)
      ASSERT_EQ(part[static_cast<std::size_t>(i)], i / 67 == row ? whole[static_cast<std::size_t>(i)] : T(-7));
  }
}

TYPED_TEST(Products, NoTermsGiveTheBias) {
  using T = TypeParam;
  Product<T> p(2, 3, 0);
  EXPECT_EQ(p.run(reference(), 0, 2),
            (std::vector<T>{p.bias[0], p.bias[1], p.bias[2], p.bias[0], p.bias[1], p.bias[2]}));
}

TYPED_TEST(Products, RowsOfBothBuildsAgree) {
  using T = TypeParam;
  const Reference &one = *reference_generic(), &two = reference();
  for (const std::int64_t n : {0, 1, 7, 16, 100, 4096, 4097, 20000}) {
    const auto x = normal<T>(n, 5);
    for (int op = 0; op <= static_cast<int>(RowOp::log_softmax); ++op) {
      std::vector<T> a(static_cast<std::size_t>(n) + 1, T(0)), b = a;
      one.row(static_cast<RowOp>(op), element_of<T>, x.data(), 1, a.data(), 1, n);
      two.row(static_cast<RowOp>(op), element_of<T>, x.data(), 1, b.data(), 1, n);
      EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(T)), 0) << op << " " << n;
    }
    if (n == 0) continue;
    T moments[4];
    one.moments_row(element_of<T>, x.data(), 1, n, moments, moments + 1);
    two.moments_row(element_of<T>, x.data(), 1, n, moments + 2, moments + 3);
    EXPECT_EQ(std::memcmp(moments, moments + 2, 2 * sizeof(T)), 0);
    long double total = 0, squares = 0;
    for (const T v : x) total += v;
    for (const T v : x) squares += (v - total / n) * (v - total / n);
    EXPECT_NEAR(moments[0], static_cast<double>(total / n), 4 * std::numeric_limits<T>::epsilon());
    EXPECT_NEAR(moments[1], static_cast<double>(squares),
                8 * std::numeric_limits<T>::epsilon() * static_cast<double>(squares));
  }
}

TYPED_TEST(Products, MaximumOfARow) {
  using T = TypeParam;
  const auto max_of = [](const std::vector<T>& x) {
    T y = 0;
    reference().row(RowOp::max, element_of<T>, x.data(), 1, &y, 1, static_cast<std::int64_t>(x.size()));
    return y;
  };
  EXPECT_EQ(max_of({1, 3, 2}), 3);
  EXPECT_EQ(max_of({}), -std::numeric_limits<T>::infinity());
  EXPECT_FALSE(std::signbit(max_of({T(-0.0), T(-0.0)})));
  EXPECT_TRUE(std::isnan(max_of({1, std::numeric_limits<T>::quiet_NaN(), 2})));
}

}  // namespace
}  // namespace attn::kernels
