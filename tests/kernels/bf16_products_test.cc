// tests/kernels/bf16_products_test.cc: products of bf16: one order of operations whatever the shape, layout and
// threads.
#include "kernels/gemm/packed.h"
#include "kernels/gemm/product.h"
#include "kernels/gemm/target.h"
#include "runtime/cpu.h"
#include "kernels/half.h"

#include <attn/runtime.h>

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <tuple>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>

namespace attn::kernels {
namespace {

/// sum + a b of one pair, by the instruction.
__attribute__((target("avx512bf16,avx512vl"))) float step(float sum, std::uint32_t a, std::uint32_t b) {
  const __m128i left = _mm_cvtsi32_si128(static_cast<int>(a)), right = _mm_cvtsi32_si128(static_cast<int>(b));
  return _mm_cvtss_f32(_mm_dpbf16_ps(_mm_set_ss(sum), (__m128bh)left, (__m128bh)right));
}

/// fma(a, b, sum), denormals read and written as 0 where the caller says so.
__attribute__((target("fma"))) float flushed_fma(float a, float b, float sum) {
  return _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(a), _mm_set_ss(b), _mm_set_ss(sum)));
}

/// Denormals are 0 for as long.
struct Flushing {
  unsigned before = _mm_getcsr();
  Flushing() { _mm_setcsr(before | 0x8040u); }
  ~Flushing() { _mm_setcsr(before); }
  Flushing(const Flushing&) = delete;
  Flushing& operator=(const Flushing&) = delete;
};

enum class Layout { nn, nt, tn, tt, strided };
enum class Numbers { common, rare, tiny };

struct Bf16Product : ::testing::Test {
  std::mt19937 random{11};
  std::vector<std::uint16_t> a, b;
  std::vector<float> bias;
  GemmProblem problem;
  Numbers kind = Numbers::common;
  const bool tiles = runtime::target() == "amx";

  void SetUp() override {
    if (!multiplies_bf16()) GTEST_SKIP() << "this processor or target has no dot product of bf16";
  }
  void TearDown() override { set_num_threads(runtime::cpu().cores); }

  float value() {
    const float number = std::uniform_real_distribution<float>(-1, 1)(random);
    if (kind == Numbers::common || random() % 4 != 0) return kind == Numbers::tiny ? number * 0x1p-60f : number;
    const float rare[] = {
        std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(), 0, -0.0f, 0x1p127f, -0x1p127f};
    if (kind == Numbers::rare) return random() % 20 == 0 ? rare[random() % 6] : number;
    return std::ldexp(number, -static_cast<int>(50 + random() % 90));  // denormals, and products that are
  }
  void make(std::int64_t m, std::int64_t n, std::int64_t k, Layout layout, bool with_bias) {
    const std::int64_t gap = layout == Layout::strided ? 3 : 1;
    a.resize(static_cast<std::size_t>(m * k * gap));
    b.resize(static_cast<std::size_t>(n * k * gap));
    bias.resize(static_cast<std::size_t>(n));
    for (auto* array : {&a, &b})
      for (auto& x : *array) x = half::to_bf16(value());
    for (float& x : bias) x = value();
    const bool a_turned = layout == Layout::tn || layout == Layout::tt,
               b_turned = layout == Layout::nt || layout == Layout::tt;
    problem = {};
    problem.m = m;
    problem.n = n;
    problem.k = k;
    problem.a = a.data();
    problem.b = b.data();
    problem.bias = with_bias ? bias.data() : nullptr;
    problem.element = Element::bf16;
    problem.a_stride[0] = a_turned ? 1 : k * gap;
    problem.a_stride[1] = a_turned ? m : gap;
    problem.b_stride[0] = b_turned ? 1 : n * gap;
    problem.b_stride[1] = b_turned ? k : gap;
    problem.y_stride[0] = n;
    problem.y_stride[1] = 1;
  }
  std::uint32_t left(std::int64_t i, std::int64_t k) const {
    return a[static_cast<std::size_t>(i * problem.a_stride[0] + k * problem.a_stride[1])];
  }
  std::uint32_t right(std::int64_t k, std::int64_t j) const {
    return b[static_cast<std::size_t>(k * problem.b_stride[0] + j * problem.b_stride[1])];
  }

  /// A block of k of one element, by the processor's dot product of pairs.
  float block_of_pairs(std::int64_t i, std::int64_t j, std::int64_t start, std::int64_t end) const {
    float sum = 0;
    for (std::int64_t k = start; k < end; k += 2) {
      const bool pair = k + 1 < end;
      sum = step(sum, right(k, j) | (pair ? right(k + 1, j) << 16 : 0), left(i, k) | (pair ? left(i, k + 1) << 16 : 0));
    }
    return sum;
  }
  /// The same by its tiles: in units of 32 items a chain of the even ones, another of the odd ones, their sum added.
  float block_of_tiles(std::int64_t i, std::int64_t j, std::int64_t start, std::int64_t end) const {
    const Flushing flushing;
    volatile float sum = 0;  // its steps stay between the two settings
    for (std::int64_t unit = start; unit < end; unit += 32) {
      volatile float chain[2] = {0, 0};
      for (std::int64_t k = unit; k < unit + 32; ++k) {
        const bool there = k < end;
        const float x = there ? half::from_bf16(static_cast<std::uint16_t>(left(i, k))) : 0;
        const float y = there ? half::from_bf16(static_cast<std::uint16_t>(right(k, j))) : 0;
        chain[k % 2] = flushed_fma(x, y, chain[k % 2]);
      }
      sum = sum + (chain[0] + chain[1]);
    }
    return sum;
  }
  /// docs/numerics.md section 5: blocks of 256 items, block sums in order, bias.
  float element(std::int64_t i, std::int64_t j) const {
    float total = 0;
    for (std::int64_t start = 0; start < problem.k; start += 256) {
      const std::int64_t end = std::min(problem.k, start + 256);
      total += tiles ? block_of_tiles(i, j, start, end) : block_of_pairs(i, j, start, end);
    }
    if (problem.bias) total += bias[static_cast<std::size_t>(j)];
    return std::isnan(total) ? std::numeric_limits<float>::quiet_NaN() : total;
  }
  template <typename T>
  std::vector<T> run(const PackedWeights* packed = nullptr) {
    std::vector<T> y(static_cast<std::size_t>(problem.m * problem.n), T(77));
    GemmProblem p = problem;
    p.y = y.data();
    p.narrow = sizeof(T) == 2;
    packed ? multiply_packed(p, *packed) : multiply(p);
    return y;
  }
  void compare() {
    const auto wide = run<float>();
    const auto narrow = run<std::uint16_t>();
    const PackedWeights packed(problem);
    ASSERT_EQ(std::memcmp(wide.data(), run<float>(&packed).data(), wide.size() * 4), 0);
    ASSERT_EQ(std::memcmp(narrow.data(), run<std::uint16_t>(&packed).data(), narrow.size() * 2), 0);
    for (std::int64_t i = 0; i < problem.m; ++i)
      for (std::int64_t j = 0; j < problem.n; ++j) {
        const auto at = static_cast<std::size_t>(i * problem.n + j);
        const float expected = element(i, j);
        ASSERT_EQ(std::memcmp(&wide[at], &expected, sizeof expected), 0)
            << i << ", " << j << ": " << wide[at] << " is not " << expected;
        ASSERT_EQ(narrow[at], half::to_bf16(expected)) << i << ", " << j;
      }
  }
};

TEST_F(Bf16Product, HasTheOrderOfTheInstructionInEveryShapeAndLayout) {
  const std::int64_t depths[] = {1, 2, 5, 31, 32, 33, 64, 255, 256, 257, 600, 768};
  for (int i = 0; i < 300; ++i) {
    const std::int64_t m = 1 + static_cast<std::int64_t>(random() % (i % 3 == 0 ? 140 : 40)),
                       n = 1 + static_cast<std::int64_t>(random() % 130);
    const std::int64_t k = depths[random() % 12];
    kind = static_cast<Numbers>(i / 2 % 3);
    const auto layout = static_cast<Layout>(random() % 5);
    SCOPED_TRACE(::testing::Message() << "m " << m << " n " << n << " k " << k << " layout "
                                      << static_cast<int>(layout));
    set_num_threads(1 + i % 3);
    make(m, n, k, layout, random() % 2 == 0);
    compare();
  }
}

TEST_F(Bf16Product, KeepsTheBitsOfARowInAnyNumberOfRows) {
  for (const Layout layout : {Layout::nt, Layout::nn, Layout::tn, Layout::tt, Layout::strided}) {
    make(130, 70, 301, layout, true);
    const auto all = run<float>();
    const PackedWeights packed(problem);
    for (problem.m = 1; problem.m < 130; ++problem.m)
      for (const PackedWeights* weights : {static_cast<const PackedWeights*>(nullptr), &packed})
        ASSERT_EQ(
            std::memcmp(run<float>(weights).data(), all.data(), static_cast<std::size_t>(problem.m * problem.n) * 4), 0)
            << problem.m;
  }
}

TEST_F(Bf16Product, LargeOnesKeepTheBitsOfARowAlone) {
  const std::tuple<std::int64_t, std::int64_t, std::int64_t> shapes[] = {
      {140, 1100, 2100}, {1300, 70, 1100}, {1100, 530, 40}, {530, 600, 300}, {70, 2100, 1030}};
  for (const auto& [m, n, k] : shapes)
    for (const Layout layout : {Layout::nt, Layout::nn, Layout::tn, Layout::tt}) {
      make(m, n, k, layout, true);
      const PackedWeights packed(problem);
      const auto one = [&](std::int64_t i) {
        const GemmProblem all = problem;
        problem.a = a.data() + i * problem.a_stride[0];
        problem.m = 1;
        const std::vector<float> row = run<float>();
        problem = all;
        return row;
      };
      for (const int threads : {1, 3}) {
        set_num_threads(threads);
        for (const PackedWeights* weights : {static_cast<const PackedWeights*>(nullptr), &packed}) {
          const auto wide = run<float>(weights);
          const auto narrow = run<std::uint16_t>(weights);
          for (const std::int64_t i : {std::int64_t{0}, std::int64_t{33}, m / 2, m - 1}) {
            const auto row = one(i);
            for (std::int64_t j = 0; j < n; ++j) {
              const auto at = static_cast<std::size_t>(i * n + j), in_row = static_cast<std::size_t>(j);
              ASSERT_EQ(std::memcmp(&wide[at], &row[in_row], sizeof(float)), 0)
                  << m << " x " << n << " x " << k << ", " << i << ", " << j << ", threads " << threads;
              ASSERT_EQ(narrow[at], half::to_bf16(row[in_row]))
                  << m << " x " << n << " x " << k << ", " << i << ", " << j << ", threads " << threads;
            }
          }
        }
      }
    }
}

TEST_F(Bf16Product, TallOnesHaveAPartForEveryThreadAndScratchOfAFewMegabytes) {
  const GemmTarget& target = *gemm_target(tiles ? "amx" : "avx512");
  problem = {};
  problem.element = Element::bf16;
  problem.m = 65536;
  problem.y_stride[0] = problem.n = problem.k = problem.b_stride[0] = 768;
  problem.y_stride[1] = problem.b_stride[1] = 1;
  for (const bool transposed : {false, true}) {
    problem.a_stride[0] = transposed ? 1 : problem.k;
    problem.a_stride[1] = transposed ? problem.m : 1;
    problem.threads = 64;
    if (tiles) { EXPECT_GE(target.parts(problem, false), 64) << transposed; }
    problem.threads = 1;
    EXPECT_LE(target.scratch_bytes(problem, false), std::size_t{12} << 20) << transposed;
  }
}

TEST_F(Bf16Product, LargeTransposedOnesPackBothOperandsOnce) {
  for (const int threads : {1, 3}) {
    set_num_threads(threads);
    make(210, 170, 901, Layout::tn, true);
    compare();
  }
}

TEST_F(Bf16Product, TotalsOfLongSumsWaitBesideANarrowResult) {
  for (const Layout layout : {Layout::nt, Layout::tn}) {
    make(11, 50, 9001, layout, true);
    compare();
  }
}

TEST_F(Bf16Product, FunctionsAreThoseOfTheStoredSum) {
  make(19, 50, 64, Layout::nt, true);
  const auto sums = run<std::uint16_t>();
  const struct {
    Activation activation;
    Unary op;
  } functions[] = {{Activation::silu, Unary::silu},
                   {Activation::gelu_none, Unary::gelu_none},
                   {Activation::gelu_tanh, Unary::gelu_tanh}};
  for (const auto& function : functions) {
    problem.activation = function.activation;
    const auto y = run<std::uint16_t>();
    for (std::size_t i = 0; i < y.size(); ++i) {
      float x = half::from_bf16(sums[i]), expected;
      reference().unary(function.op, Element::f32, &x, &expected, 1);
      ASSERT_EQ(y[i], half::to_bf16(expected)) << x;
    }
  }
  problem.activation = Activation::relu;
  const auto y = run<std::uint16_t>();
  for (std::size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], half::from_bf16(sums[i]) < 0 ? 0 : sums[i]);
}

TEST_F(Bf16Product, IsCloseToTheSumInF64) {
  make(20, 40, 768, Layout::nt, false);
  const auto y = run<float>();
  for (std::int64_t i = 0; i < problem.m; ++i)
    for (std::int64_t j = 0; j < problem.n; ++j) {
      double sum = 0, magnitude = 0;
      for (std::int64_t k = 0; k < problem.k; ++k) {
        const double product = double{half::from_bf16(static_cast<std::uint16_t>(left(i, k)))} *
                               half::from_bf16(static_cast<std::uint16_t>(right(k, j)));
        sum += product;
        magnitude += std::fabs(product);
      }
      EXPECT_NEAR(y[static_cast<std::size_t>(i * problem.n + j)], sum, magnitude * 4e-7);
    }
}

}  // namespace
}  // namespace attn::kernels
#endif
