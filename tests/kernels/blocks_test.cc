// tests/kernels/blocks_test.cc: products of blocks of quantised weights have the bits of those with the decoded
// weights, on every instruction set, for any number of rows and threads.
#include "kernels/gemm/product.h"
#include "kernels/gemm/target.h"
#include "kernels/half.h"
#include "kernels/reference.h"
#include "runtime/cpu.h"
#include "runtime/memory.h"

#include <attn/runtime.h>

#include "support/guarded.h"
#include "support/random_blocks.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace attn::kernels {
namespace {

using attn::testing::Guarded;

constexpr BlockFormat formats[] = {BlockFormat::q8_0, BlockFormat::q4_0, BlockFormat::q4_1, BlockFormat::q5_0,
                                   BlockFormat::q5_1, BlockFormat::q4_k, BlockFormat::q5_k, BlockFormat::q6_k};
constexpr const char* format_names[] = {"none", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"};

/// y [m, n] = a [m, k] times blocks [n, k], with the decoded blocks beside. Each operand ends where its pages end.
struct BlockProduct {
  std::int64_t m, n, k, row_bytes;
  Guarded a, blocks, bias;
  std::vector<float> decoded, expected;
  GemmProblem problem;

  static std::int64_t row_bytes_of(BlockFormat format, std::int64_t k) {
    return k / block_size(format).elements * block_size(format).bytes;
  }

  BlockProduct(BlockFormat format, std::int64_t rows, std::int64_t columns, std::int64_t inner, bool any, unsigned seed)
      : m(rows), n(columns), k(inner), row_bytes(row_bytes_of(format, k)), a(static_cast<std::size_t>(m * k) * 4),
        blocks(static_cast<std::size_t>(n * row_bytes)), bias(static_cast<std::size_t>(n) * 4),
        decoded(static_cast<std::size_t>(n * k)), expected(static_cast<std::size_t>(m * n)) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> value(-1, 1);
    for (std::int64_t i = 0; i < m * k; ++i) static_cast<float*>(a.data())[i] = value(random);
    for (std::int64_t i = 0; i < n; ++i) static_cast<float*>(bias.data())[i] = value(random);
    auto* const bytes = static_cast<std::uint8_t*>(blocks.data());
    const BlockSize size = block_size(format);
    attn::testing::fill_with_blocks(format, bytes, n * k / size.elements, any, random);
    reference().decode_blocks(format, bytes, n * k / size.elements, decoded.data());
    problem = {.m = m,
               .n = n,
               .k = k,
               .a = a.data(),
               .a_stride = {k, 1},
               .b = decoded.data(),
               .b_stride = {1, k},
               .bias = seed % 2 == 0 ? bias.data() : nullptr,
               .y = expected.data(),
               .y_stride = {n, 1}};
    reference().gemm(problem, 0, m);
    problem.b = bytes;
    problem.b_stride[1] = row_bytes;
    problem.b_blocks = format;
  }

  ::testing::AssertionResult is_expected(const std::vector<float>& y) const {
    for (std::size_t i = 0; i < y.size(); ++i)
      if (std::memcmp(&y[i], &expected[i], sizeof(float)) != 0)
        return ::testing::AssertionFailure() << "element " << i << ": " << y[i] << " is not " << expected[i];
    return ::testing::AssertionSuccess();
  }

  std::vector<float> by_reference(const Reference& build) {
    std::vector<float> y(expected.size(), 99);
    problem.y = y.data();
    build.gemm(problem, 0, m);
    return y;
  }
  std::vector<float> by_target(const GemmTarget& target) {
    std::vector<float> y(expected.size(), 99);
    problem.y = y.data();
    const std::size_t bytes = target.scratch_bytes(problem, false);
    const std::shared_ptr<void> scratch(runtime::allocate(bytes), runtime::deallocate);
    for (std::int64_t part = target.parts(problem, false); part-- > 0;)
      target.run(problem, part, scratch.get(), nullptr);
    return y;
  }
};

class Blocks : public ::testing::TestWithParam<BlockFormat> {
 protected:
  template <typename F>
  void each_case(F&& run) const {
    const std::int64_t least = block_size(GetParam()).elements;
    unsigned seed = 0;
    for (const std::int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 9, 23, 70})
      for (const std::int64_t n : {1, 5, 16, 17, 33, 48, 67})
        for (const std::int64_t depth : {1, 3, 9})
          for (const bool any : {false, true}) {
            if (m > 9 && n > 17 && n < 67) continue;
            BlockProduct product(GetParam(), m, n, depth * least, any, ++seed);
            SCOPED_TRACE(::testing::Message() << "m " << m << " n " << n << " k " << depth * least << " any " << any);
            run(product);
            if (::testing::Test::HasFailure()) return;
          }
  }
};

TEST_P(Blocks, HaveTheBitsOfTheDecodedOnesInTheSpecification) {
  each_case([](BlockProduct& product) {
    EXPECT_TRUE(product.is_expected(product.by_reference(*reference_generic())));
    EXPECT_TRUE(product.is_expected(product.by_reference(reference())));
  });
}

TEST_P(Blocks, HaveTheBitsOfTheDecodedOnesOnEveryTarget) {
  for (const std::string& name : runtime::targets()) {
    const GemmTarget* const target = gemm_target(name.c_str());
    if (target == nullptr) continue;
    SCOPED_TRACE(name);
    each_case([&](BlockProduct& product) { EXPECT_TRUE(product.is_expected(product.by_target(*target))); });
  }
}

TEST_P(Blocks, HaveTheSameBitsOnAnyThreads) {
  const int before = num_threads();
  for (const std::int64_t m : {1, 4, 64}) {
    BlockProduct left(GetParam(), m, 700, 1024, false, 1), right(GetParam(), m, 90, 1024, false, 2);
    for (const int threads : {1, 2, 3}) {
      set_num_threads(threads);
      std::vector<float> y(left.expected.size(), 99), z(right.expected.size(), 99);
      left.problem.y = y.data();
      right.problem.y = z.data();
      multiply(left.problem);
      EXPECT_TRUE(left.is_expected(y)) << m << " rows, " << threads << " threads";
      std::fill(y.begin(), y.end(), 99.0f);
      const GemmProblem both[] = {left.problem, right.problem};
      multiply_each(both);
      EXPECT_TRUE(left.is_expected(y)) << m << " rows, " << threads << " threads";
      EXPECT_TRUE(right.is_expected(z)) << m << " rows, " << threads << " threads";
    }
  }
  set_num_threads(before);
}

/// In bf16 each decoded weight is rounded to bf16.
TEST_P(Blocks, HaveTheBitsOfTheRoundedOnesInBf16) {
  if (!multiplies_blocks(Element::bf16)) GTEST_SKIP() << "no bf16 dot product";
  each_case([](BlockProduct& product) {
    std::vector<std::uint16_t> a(static_cast<std::size_t>(product.m * product.k)), b(product.decoded.size()),
        y(product.expected.size(), 99), z(product.expected.size(), 98);
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = half::to_bf16(static_cast<const float*>(product.a.data())[i]);
    for (std::size_t i = 0; i < b.size(); ++i) b[i] = half::to_bf16(product.decoded[i]);
    GemmProblem problem = product.problem;
    problem.element = Element::bf16;
    problem.narrow = true;
    problem.a = a.data();
    problem.y = y.data();
    multiply(problem);
    problem.b_blocks = BlockFormat::none;
    problem.b = b.data();
    problem.b_stride[1] = product.k;
    problem.y = z.data();
    multiply(problem);
    EXPECT_EQ(y, z);
  });
}

INSTANTIATE_TEST_SUITE_P(Every, Blocks, ::testing::ValuesIn(formats),
                         [](const auto& info) { return std::string(format_names[static_cast<int>(info.param)]); });

}  // namespace
}  // namespace attn::kernels
