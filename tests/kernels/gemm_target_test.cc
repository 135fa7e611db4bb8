// tests/kernels/gemm_target_test.cc: the matrix product of every instruction set has the bits of the specification.
#include "kernels/gemm/product.h"
#include "kernels/gemm/target.h"
#include "kernels/gemm/tiles.h"
#include "kernels/reference.h"
#include "runtime/cpu.h"
#include "runtime/memory.h"
#include "kernels/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

namespace attn::kernels {
namespace {

enum class Layout { nn, nt, tn, tt, strided, tn_apart };  // tn_apart: columns of a more than a page apart

template <typename T>
struct Product {
  std::vector<T> a, b, bias, y;
  GemmProblem problem;

  Product(std::int64_t m, std::int64_t n, std::int64_t k, Layout layout, bool with_bias, std::mt19937& random) {
    const std::int64_t gap = layout == Layout::strided ? 3 : 1;
    std::uniform_real_distribution<T> value(-1, 1);
    for (auto* array : {&a, &b}) {
      const std::int64_t apart = array == &a && layout == Layout::tn_apart ? 1100 * k : 0;
      array->resize(static_cast<std::size_t>((array == &a ? m : n) * k * gap + apart));
      for (T& x : *array) x = value(random);
    }
    bias.resize(static_cast<std::size_t>(n));
    for (T& x : bias) x = value(random);
    y.resize(static_cast<std::size_t>(m * n), T(99));
    const bool a_turned = layout == Layout::tn || layout == Layout::tt || layout == Layout::tn_apart,
               b_turned = layout == Layout::nt || layout == Layout::tt;
    problem.m = m;
    problem.n = n;
    problem.k = k;
    problem.a = a.data();
    problem.b = b.data();
    problem.y = y.data();
    problem.bias = with_bias ? bias.data() : nullptr;
    problem.element = sizeof(T) == 4 ? Element::f32 : Element::f64;
    problem.a_stride[0] = a_turned ? 1 : k * gap;
    problem.a_stride[1] = layout == Layout::tn_apart ? m + 1100 : a_turned ? m : gap;
    problem.b_stride[0] = b_turned ? 1 : n * gap;
    problem.b_stride[1] = b_turned ? k : gap;
    problem.y_stride[0] = n;
    problem.y_stride[1] = 1;
  }

  std::vector<std::uint16_t> halves;  // b as `hold_b_in` stored it

  /// b rounded to bf16 or f16, which the problem then has.
  void hold_b_in(Element half) {
    halves.resize(b.size());
    for (std::size_t i = 0; i < b.size(); ++i) {
      halves[i] = half == Element::bf16 ? half::to_bf16(b[i]) : half::to_f16(b[i]);
      b[i] = half == Element::bf16 ? half::from_bf16(halves[i]) : half::from_f16(halves[i]);
    }
    problem.b = halves.data();
    problem.b_element = half;
  }

  std::vector<T> specification() const {
    std::vector<T> result(y.size());
    GemmProblem same = problem;
    same.b = b.data();
    same.b_element = Element::f32;
    same.y = result.data();
    reference().gemm(same, 0, same.m);
    return result;
  }

  void run(const GemmTarget& target, bool pack = false) {
    const auto aligned = [](std::vector<std::byte>& memory) {
      return memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64;
    };
    std::vector<std::byte> scratch(target.scratch_bytes(problem, pack) + 64), packed(target.packed_bytes(problem) + 64);
    if (pack)
      for (std::int64_t piece = 0; piece < target.pieces(problem); ++piece)
        target.pack(problem, piece, aligned(packed));
    for (std::int64_t part = target.parts(problem, pack); part-- > 0;)
      target.run(problem, part, aligned(scratch), pack ? aligned(packed) : nullptr);
  }
};

template <typename T>
::testing::AssertionResult same_bytes(const std::vector<T>& ours, const std::vector<T>& specification) {
  for (std::size_t i = 0; i < ours.size(); ++i)
    if (std::memcmp(&ours[i], &specification[i], sizeof(T)) != 0)
      return ::testing::AssertionFailure() << "element " << i << ": " << ours[i] << " is not " << specification[i];
  return ::testing::AssertionSuccess();
}

class EveryTarget : public ::testing::TestWithParam<std::string> {
 protected:
  const GemmTarget& target() const { return *gemm_target(GetParam().c_str()); }
};

template <typename T>
void random_products(const GemmTarget& target, int count, Element b_element = Element::f32) {
  std::mt19937 random(5);
  const std::int64_t depths[] = {0, 1, 5, 255, 256, 257, 768};
  for (int i = 0; i < count; ++i) {
    const std::int64_t m = 1 + static_cast<std::int64_t>(random() % (i % 2 == 0 ? 70 : 9)),
                       n = 1 + static_cast<std::int64_t>(random() % 150), k = depths[random() % 7];
    const auto layout = static_cast<Layout>(random() % 6);
    Product<T> product(m, n, k, layout, random() % 2 == 0, random);
    SCOPED_TRACE(::testing::Message() << "m " << m << " n " << n << " k " << k << " layout "
                                      << static_cast<int>(layout));
    if (b_element != Element::f32) product.hold_b_in(b_element);
    product.run(target);
    ASSERT_TRUE(same_bytes(product.y, product.specification()));
  }
}

TEST_P(EveryTarget, HasTheBitsOfTheSpecificationF32) { random_products<float>(target(), 200); }
TEST_P(EveryTarget, HasTheBitsOfTheSpecificationF64) { random_products<double>(target(), 100); }

TEST_P(EveryTarget, WidensABOfBf16) { random_products<float>(target(), 300, Element::bf16); }
TEST_P(EveryTarget, WidensABOfF16) { random_products<float>(target(), 300, Element::f16); }

TEST_P(EveryTarget, WidensEveryHalf) {
  std::mt19937 random(14);
  for (const Element half : {Element::bf16, Element::f16})
    for (const Layout layout : {Layout::nn, Layout::nt, Layout::strided})
      for (const std::int64_t m : {1, 3, 12}) {
        Product<float> product(m, 65536, 2, layout, false, random);
        product.hold_b_in(half);
        for (std::size_t i = 0; i < product.halves.size(); ++i) {  // infinities, NaN and denormals included
          product.halves[i] = static_cast<std::uint16_t>(i);
          product.b[i] = half == Element::bf16 ? half::from_bf16(product.halves[i]) : half::from_f16(product.halves[i]);
        }
        product.run(target());
        EXPECT_TRUE(same_bytes(product.y, product.specification()))
            << "m " << m << " layout " << static_cast<int>(layout);
      }
}

TEST_P(EveryTarget, CutsLargeProductsIntoPartsWithTheSameBits) {
  std::mt19937 random(6);
  for (const Layout layout : {Layout::nn, Layout::nt, Layout::tn, Layout::tn_apart}) {
    Product<float> product(1030, 801, 300, layout, true, random);
    product.run(target());
    EXPECT_TRUE(same_bytes(product.y, product.specification()));
    product.run(target(), /*pack=*/true);
    EXPECT_TRUE(same_bytes(product.y, product.specification())) << "packed";
    product.hold_b_in(Element::bf16);
    product.run(target());
    EXPECT_TRUE(same_bytes(product.y, product.specification())) << "b of bf16";
    product.run(target(), /*pack=*/true);
    EXPECT_TRUE(same_bytes(product.y, product.specification())) << "b of bf16, packed";
  }
}

TEST_P(EveryTarget, BothOperandsArePackedWhereTheFirstHasToBe) {
  std::mt19937 random(13);
  for (const auto& [layout, both] :
       {std::pair{Layout::nn, false}, {Layout::nt, false}, {Layout::tn, false}, {Layout::tn_apart, true}}) {
    const Product<float> product(300, 250, 400, layout, true, random);
    EXPECT_EQ(target().packs_both(product.problem), both) << static_cast<int>(layout);
  }
  Product<float> product(300, 250, 400, Layout::tn_apart, true, random);
  multiply(product.problem);
  EXPECT_TRUE(same_bytes(product.y, product.specification()));
}

TEST_P(EveryTarget, KeepsNanAndInfinity) {
  std::mt19937 random(7);
  Product<float> product(20, 50, 30, Layout::nn, false, random);
  product.a[3] = std::numeric_limits<float>::quiet_NaN();
  product.a[65] = std::numeric_limits<float>::infinity();
  product.b[7] = -std::numeric_limits<float>::infinity();
  product.run(target());
  EXPECT_TRUE(same_bytes(product.y, product.specification()));
}

TEST_P(EveryTarget, AppliesFunctionsAsTheSpecification) {
  std::mt19937 random(8);
  for (const Activation activation :
       {Activation::relu, Activation::silu, Activation::gelu_none, Activation::gelu_tanh}) {
    Product<float> single(37, 65, 300, Layout::nt, true, random);
    single.problem.activation = activation;
    single.run(target());
    EXPECT_TRUE(same_bytes(single.y, single.specification()));
    Product<double> twice(37, 65, 300, Layout::nt, true, random);
    twice.problem.activation = activation;
    twice.run(target());
    EXPECT_TRUE(same_bytes(twice.y, twice.specification()));
  }
}

TEST_P(EveryTarget, WalksLongSumsInChunks) {
  std::mt19937 random(9);
  for (const Layout layout : {Layout::nt, Layout::tn, Layout::tn_apart}) {
    Product<float> product(13, 60, 5000, layout, true, random);
    product.run(target());
    EXPECT_TRUE(same_bytes(product.y, product.specification()));
  }
}

TEST_P(EveryTarget, ReadsLargeWeightsForFewRows) {
  std::mt19937 random(12);
  for (const Element b_element : {Element::f32, Element::bf16, Element::f16})
    for (const Layout layout : {Layout::nt, Layout::nn})
      for (const std::int64_t m : {1, 2, 3, 8}) {
        Product<float> product(m, 1100, 2100, layout, true, random);  // 9 MB: what comes next is fetched ahead
        if (b_element != Element::f32) product.hold_b_in(b_element);
        product.run(target());
        EXPECT_TRUE(same_bytes(product.y, product.specification()));
      }
}

TEST_P(EveryTarget, PackedWeightsChangeNothing) {
  std::mt19937 random(10);
  for (const Layout layout : {Layout::nn, Layout::nt, Layout::strided}) {
    Product<double> product(21, 75, 600, layout, true, random);
    product.run(target(), true);
    EXPECT_TRUE(same_bytes(product.y, product.specification()));
  }
}

std::vector<std::string> vector_targets() {
  std::vector<std::string> names = runtime::targets();
  names.pop_back();  // scalar: the specification itself
  return names;
}
INSTANTIATE_TEST_SUITE_P(Targets, EveryTarget, ::testing::ValuesIn(vector_targets()),
                         [](const auto& info) { return info.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EveryTarget);

/// Of a model of width 128 on 768 tokens: each layer's products and their gradients; with fewer parts than this they
/// ran on one thread.
TEST(GemmCut, ALayerOfASmallModelHasPartsForSeveralThreads) {
  const auto parts = [](std::int64_t m, std::int64_t n, std::int64_t k, bool pack_a) {
    const PartGrid grid = part_grid(m, pieces_of(n, 48), m * n * k, n * k * 4, pack_a, 2);
    return grid.row_parts * grid.column_parts;
  };
  for (const auto& [m, n, k, pack_a] : {std::tuple{768, 128, 128, false},
                                        {768, 512, 128, false},
                                        {768, 128, 512, false},
                                        {512, 128, 768, true},
                                        {128, 512, 768, true}}) {
    EXPECT_GE(parts(m, n, k, pack_a), 4) << m << " " << n << " " << k;
    EXPECT_LE(parts(m, n, k, pack_a), 16) << m << " " << n << " " << k;
  }
  EXPECT_EQ(parts(64, 48, 64, false), 1);  // too little for two
}

/// A part that packs its rows of A and all of B waits for no other; one part more than threads would leave all but one
/// of them without work.
TEST(GemmCut, PartsThatPackBothAreAMultipleOfTheThreads) {
  constexpr std::int64_t work = std::int64_t{1} << 25;
  EXPECT_EQ(parts_with_b(768, work, 1), 0);
  EXPECT_EQ(parts_with_b(768, work, 2), 2);
  EXPECT_EQ(parts_with_b(2048, work, 2), 4);
  for (const std::int64_t threads : {1, 2, 3, 8})
    for (std::int64_t rows = 1; rows < 10'000; rows += 37) {
      SCOPED_TRACE(std::to_string(rows) + " rows, " + std::to_string(threads) + " threads");
      EXPECT_EQ(parts_with_b(rows, least_shared_work - 1, threads), 0);
      EXPECT_FALSE(threads == 2 && part_grid_of_rows(rows, work, threads).row_parts == 3);
      const std::int64_t parts = parts_with_b(rows, work, threads);
      if (parts == 0) continue;
      EXPECT_EQ(parts % threads, 0);
      EXPECT_GE(rows / parts, own_b_rows);
      EXPECT_LE(pieces_of(rows, parts), packed_part_rows);
    }
}

}  // namespace
}  // namespace attn::kernels
