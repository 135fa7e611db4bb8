// tests/tensor/matmul_test.cc: torch's rank rules, strides, dtypes, row independence and error texts of products.
#include "runtime/memory.h"
#include "support/errors.h"
#include "support/golden.h"
#include "tensor/impl.h"
#include "tensor/products.h"
#include "tensor/record.h"

#include <attn/random.h>
#include <attn/runtime.h>

#include <gtest/gtest.h>

namespace attn {
namespace {

using testing::bits_equal;
using testing::error_of;

/// The definition of docs/numerics.md section 5 for one element, in f32.
float element(const std::vector<float>& a, const std::vector<float>& b) {
  float total = 0;
  for (std::size_t start = 0; start < a.size(); start += 256) {
    float sum = 0;
    for (std::size_t k = start; k < std::min(a.size(), start + 256); ++k) sum = std::fma(a[k], b[k], sum);
    total += sum;
  }
  return total;
}

std::vector<float> floats(const Tensor& x) {
  const auto values = x.to_vector();
  return {values.begin(), values.end()};
}

TEST(Matmul, RanksAsTorch) {
  const Tensor v = randn({5}), m = randn({4, 5}), n = randn({5, 3}), batch = randn({2, 1, 4, 5}),
               other = randn({6, 5, 3});
  EXPECT_EQ(matmul(v, v).sizes(), Dims{});
  EXPECT_EQ(matmul(m, v).sizes(), Dims({4}));
  EXPECT_EQ(matmul(v, n).sizes(), Dims({3}));
  EXPECT_EQ(matmul(m, n).sizes(), Dims({4, 3}));
  EXPECT_EQ(matmul(batch, n).sizes(), Dims({2, 1, 4, 3}));
  EXPECT_EQ(matmul(batch, v).sizes(), Dims({2, 1, 4}));
  EXPECT_EQ(matmul(v, other).sizes(), Dims({6, 3}));
  EXPECT_EQ(matmul(m, other).sizes(), Dims({6, 4, 3}));
  EXPECT_EQ(matmul(batch, other).sizes(), Dims({2, 6, 4, 3}));
  EXPECT_EQ(matmul(empty({3, 0}), empty({0, 2})).to_vector(), std::vector<double>(6, 0.0));
  EXPECT_EQ(matmul(empty({0, 3}), empty({3, 2})).sizes(), Dims({0, 2}));
}

TEST(Matmul, EveryElementIsTheSameChain) {
  for (const std::int64_t k : {1, 5, 255, 256, 257, 768}) {
    const Tensor a = randn({7, k}), b = randn({k, 41}), y = matmul(a, b);
    for (int i = 0; i < 7; ++i)
      for (int j = 0; j < 41; ++j)
        ASSERT_EQ(static_cast<float>(y.select(0, i).select(0, j).item()),
                  element(floats(a.select(0, i)), floats(b.select(1, j))))
            << k;
  }
}

TEST(Matmul, RowsDoNotKnowEachOtherNorTheThreads) {
  const Tensor a = randn({300, 64}), b = randn({64, 600});
  set_num_threads(1);
  const Tensor alone = matmul(a, b);
  for (const int threads : {2, 3, 8}) {
    set_num_threads(threads);
    EXPECT_TRUE(bits_equal(matmul(a, b), alone));
  }
  for (int m = 1; m <= 40; ++m) EXPECT_TRUE(bits_equal(matmul(a.slice(0, 0, m), b), alone.slice(0, 0, m)));
  EXPECT_TRUE(bits_equal(matmul(a[299], b), alone[299]));
  EXPECT_TRUE(bits_equal(matmul(a.reshape({3, 100, 64}), b), alone.reshape({3, 100, 600})));
}

TEST(Matmul, EveryNumberOfRowsGivesARowTheSameBits) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16}) {
    const Tensor x = randn({130, 257}).to(dtype), weight = randn({50, 257}).to(dtype), turned = weight.t().contiguous(),
                 all = linear(x, weight);
    EXPECT_TRUE(bits_equal(matmul(x, turned), all));
    for (int m = 1; m < 130; ++m) {
      ASSERT_TRUE(bits_equal(linear(x.slice(0, 0, m), weight), all.slice(0, 0, m))) << m;
      ASSERT_TRUE(bits_equal(matmul(x.slice(0, 0, m), turned), all.slice(0, 0, m))) << m;
    }
  }
}

TEST(Matmul, BatchesAreTheirItems) {
  const Tensor a = randn({300, 5, 17}), b = randn({300, 17, 9}), y = bmm(a, b);
  for (int i = 0; i < 300; ++i) ASSERT_TRUE(bits_equal(y[i], matmul(a[i], b[i]))) << i;
  const Tensor large = randn({3, 200, 300}), other = randn({3, 300, 250}), product = matmul(large, other);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(bits_equal(product[i], matmul(large[i], other[i])));
}

TEST(Linear, ActivatedInOnePassAsInTwo) {
  using kernels::Activation;
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16}) {
    const Tensor x = randn({21, 64}).to(dtype), weight = randn({50, 64}).to(dtype), bias = randn({50}).to(dtype),
                 y = linear(x, weight, bias);
    EXPECT_TRUE(bits_equal(linear_activated(x, weight, bias, Activation::none).to(dtype), y));
    EXPECT_TRUE(bits_equal(linear_activated(x, weight, bias, Activation::relu), relu(y)));
    EXPECT_TRUE(bits_equal(linear_activated(x, weight, bias, Activation::silu), silu(y)));
    EXPECT_TRUE(bits_equal(linear_activated(x, weight, bias, Activation::gelu_none), gelu(y)));
    EXPECT_TRUE(bits_equal(linear_activated(x, weight, bias, Activation::gelu_tanh), gelu(y, GeluApproximate::tanh)));
  }
}

TEST(Matmul, StridesDoNotChangeBits) {
  const Tensor a = randn({2, 9, 33}), b = randn({2, 33, 17}), y = matmul(a, b);
  const Tensor a_transposed = a.transpose(1, 2).contiguous().transpose(1, 2),
               b_transposed = b.transpose(1, 2).contiguous().transpose(1, 2);
  EXPECT_TRUE(bits_equal(matmul(a_transposed, b), y));
  EXPECT_TRUE(bits_equal(matmul(a, b_transposed), y));
  EXPECT_TRUE(bits_equal(matmul(a_transposed, b_transposed), y));
  EXPECT_TRUE(bits_equal(matmul(a, b.slice(0, 0, 1)), matmul(a, b[0].expand({2, 33, 17}))));
  EXPECT_TRUE(bits_equal(bmm(a, b), y));
  const Tensor out = empty({2, 17, 9}).transpose(1, 2);
  EXPECT_TRUE(bits_equal(matmul(a, b, out), y));
  EXPECT_TRUE(bits_equal(out, y));
}

TEST(Matmul, HalfFloatsRoundOnce) {
  const Tensor a = randn({8, 300}), b = randn({300, 8});
  for (const Dtype dtype : {Dtype::bf16, Dtype::f16}) {
    const Tensor x = a.to(dtype), y = b.to(dtype);
    EXPECT_TRUE(bits_equal(matmul(x, y), matmul(x.to(Dtype::f32), y.to(Dtype::f32)).to(dtype)));
  }
}

TEST(Matmul, IntegersAreExact) {
  const Tensor a = tensor<std::int64_t>({1, 2, 3, std::int64_t{1} << 62}, {2, 2}),
               b = tensor<std::int64_t>({5, 6, 7, 4}, {2, 2});
  EXPECT_EQ(matmul(a, b).to_int_vector(), (std::vector<std::int64_t>{19, 14, 15 - (std::int64_t{1} << 62), 18}));
  EXPECT_EQ(matmul(a, b).dtype(), Dtype::i64);
}

TEST(Matmul, ZerosArePositive) {
  const Tensor tiny = full({1, 1}, -1e-30), other = full({1, 1}, 1e-30);
  EXPECT_FALSE(std::signbit(matmul(tiny, other).item()));
}

TEST(Linear, IsAProductWithTheTransposedWeightAndTheBiasLast) {
  const Tensor x = randn({2, 3, 20}), weight = randn({7, 20}), bias = randn({7});
  const Tensor product = matmul(x, weight.t());
  EXPECT_TRUE(bits_equal(linear(x, weight), product));
  EXPECT_TRUE(bits_equal(linear(x, weight, bias), product + bias));
  EXPECT_TRUE(bits_equal(linear(x[0][0], weight, bias), (product + bias)[0][0]));
}

/// A result in given memory: written there without memory of its own where that can be, the same bits in any case.
TEST(Linear, WritesIntoGivenMemory) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16}) {
    const Tensor x = randn({4, 60, 40}).to(dtype), weight = randn({30, 40}).to(dtype), bias = randn({30}).to(dtype);
    const Tensor y = linear(x, weight, bias), out = empty({4, 60, 30}, dtype);
    EXPECT_EQ(linear(x, weight, bias, out).data(), out.data());
    EXPECT_TRUE(bits_equal(out, y));
    const Tensor apart = empty({4, 30, 60}, dtype).transpose(1, 2);
    linear(x, weight, bias, apart);
    EXPECT_TRUE(bits_equal(apart, y));
    const Tensor square = randn({8, 8}).to(dtype), product = matmul(square, square), in_place = square.clone();
    matmul(in_place, in_place, in_place);
    EXPECT_TRUE(bits_equal(in_place, product)) << "what is read is not written before";
    const Tensor row = randn({1, 8}).to(dtype), shared = randn({1, 8}).to(dtype),
                 beside = linear(row, square, shared[0]);
    linear(row, square, shared[0], shared);
    EXPECT_TRUE(bits_equal(shared, beside)) << "nor is the bias";
    const Tensor vector = empty({30}, dtype);
    linear(x[0][0], weight, bias, vector);
    EXPECT_TRUE(bits_equal(vector, y[0][0]));
    matmul(weight, x[0][0], vector);
    EXPECT_TRUE(bits_equal(vector, matmul(weight, x[0][0])));
  }
  const Tensor x = randn({64, 64}), out = empty({64, 64});
  linear(x, x, {}, out);  // threads have their scratch
  const std::size_t before = runtime::allocated_bytes();
  runtime::reset_peak();
  linear(x, x, {}, out);
  EXPECT_EQ(runtime::peak_bytes(), before);
}

TEST(Products, NameTheirOperationAsTorch) {
  const auto name = [](const Tensor& x) { return std::string(x.impl()->node->name); };
  const Tensor v = randn({3}).requires_grad_(), m = randn({3, 3}).requires_grad_(),
               b = randn({2, 3, 3}).requires_grad_();
  EXPECT_EQ(name(matmul(m, m)), "MmBackward0");
  EXPECT_EQ(name(matmul(v, m)), "SqueezeBackward4");
  EXPECT_EQ(name(matmul(m, v)), "MvBackward0");
  EXPECT_EQ(name(dot(v, v)), "DotBackward0");
  EXPECT_EQ(name(matmul(b, m)), "UnsafeViewBackward0");
  EXPECT_EQ(name(bmm(b, b)), "BmmBackward0");
  EXPECT_EQ(name(linear(m, m, v)), "AddmmBackward0");
  EXPECT_EQ(name(linear(b, m, v)), "ViewBackward0");
}

TEST(Products, ErrorsSayWhatIsNeeded) {
  EXPECT_EQ(error_of<Error>([] { matmul(zeros({2, 3}), zeros({4, 5})); }),
            "matmul: a has shape [2, 3], b [4, 5]; the last dim of a (3) must equal dim -2 of b (4)");
  EXPECT_EQ(error_of<Error>([] { matmul(zeros({2, 3}), zeros({4})); }),
            "matmul: a has shape [2, 3], b [4]; the last dim of a (3) must equal dim -1 of b (4)");
  EXPECT_EQ(error_of<Error>([] { matmul(zeros({2, 3}), zeros({3, 2}, Dtype::f64)); }),
            "matmul: the operands are f32 and f64; they must be the same");
  EXPECT_EQ(error_of<Error>([] { dot(zeros({2}), zeros({3})); }),
            "dot: a has shape [2], b [3]; both must be vectors of one length");
  EXPECT_EQ(error_of<Error>([] { dot(zeros({2}), zeros({2}, Dtype::f64)); }),
            "dot: the operands are f32 and f64; they must be the same");
  EXPECT_EQ(error_of<Error>([] { bmm(zeros({2, 3}), zeros({3, 2})); }),
            "bmm: a has shape [2, 3], b [3, 2]; they must be [B, M, K] and [B, K, N]");
  EXPECT_EQ(error_of<Error>([] { linear(zeros({2, 3}), zeros({4, 5})); }),
            "linear: x has shape [2, 3], weight [4, 5]; they must be [..., in] and [out, in]");
  EXPECT_EQ(error_of<Error>([] { linear(zeros({2, 3}), zeros({4, 3}), zeros({3})); }),
            "linear: bias has shape [3]; it must be [4]");
  EXPECT_THROW(matmul(zeros({2, 3, 4}), zeros({3, 4, 5})), ShapeError);
  const Tensor small = full({2, 2}, 7);
  EXPECT_EQ(error_of<Error>([&] { linear(zeros({2, 3}), zeros({4, 3}), {}, small); }),
            "linear: out has shape [2, 2]; it must be [2, 4]");
  EXPECT_EQ(error_of<Error>([&] { matmul(zeros({2, 3}), zeros({3, 2}), small.to(Dtype::f64)); }),
            "matmul: out is f64; it must be f32");
  EXPECT_EQ(small.to_vector(), std::vector<double>(4, 7)) << "nothing is written";
}

}  // namespace
}  // namespace attn
