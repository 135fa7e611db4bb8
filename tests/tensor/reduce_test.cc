// tests/tensor/reduce_test.cc: sums, means, variances, norms, extremes and cumsum along any dims, empty tensors,
// integers, errors.
#include "support/errors.h"
#include "support/golden.h"

#include <attn/random.h>
#include <attn/runtime.h>

#include <gtest/gtest.h>

#include <cmath>

namespace attn {
namespace {

using testing::bits_equal;
using testing::error_of;
using testing::within;

/// Section 5 of docs/numerics.md as a recursion: the order of a sum, written another way than the kernel's.
float blocks_sum(const std::vector<float>& sums, std::size_t first, std::size_t count) {
  if (count == 1) return sums[first];
  std::size_t left = 1;
  while (2 * left < count) left *= 2;
  return blocks_sum(sums, first, left) + blocks_sum(sums, first + left, count - left);
}
float row_sum(const std::vector<float>& x) {
  std::vector<float> sums;
  for (std::size_t start = 0; start < x.size(); start += 4096) {
    std::vector<float> partial(16, 0.0f);
    for (std::size_t i = start; i < std::min(x.size(), start + 4096); ++i) partial[i % 16] += x[i];
    for (const std::size_t half : {8, 4, 2, 1})
      for (std::size_t lane = 0; lane < half; ++lane) partial[lane] += partial[lane + half];
    sums.push_back(partial[0]);
  }
  return sums.empty() ? 0 : blocks_sum(sums, 0, sums.size());
}

TEST(Sum, HasTheDocumentedOrder) {
  for (const std::int64_t n : {0, 1, 15, 16, 17, 4095, 4096, 4097, 3 * 4096, 5 * 4096 + 1, 7 * 4096, 11 * 4096 + 77}) {
    const Tensor x = randn({n});
    const auto values = x.to_vector();
    EXPECT_EQ(static_cast<float>(sum(x).item()), row_sum({values.begin(), values.end()})) << n;
  }
}

TEST(Sum, AnyDimsAndStrides) {
  const Tensor x = randn({3, 4, 5, 6}, Dtype::f64);
  EXPECT_EQ(sum(x, {1, -1}).sizes(), Dims({3, 5}));
  EXPECT_EQ(sum(x, {1, -1}, true).sizes(), Dims({3, 1, 5, 1}));
  EXPECT_EQ(sum(x, {}, true).sizes(), Dims({1, 1, 1, 1}));
  EXPECT_TRUE(bits_equal(sum(x, {3, 1}), sum(x, {1, 3})));
  EXPECT_TRUE(bits_equal(sum(x.permute({2, 0, 3, 1}), {3, 2}), sum(x.permute({2, 0, 3, 1}).contiguous(), {3, 2})));
  EXPECT_TRUE(bits_equal(sum(x, {0}), sum(x.permute({1, 2, 3, 0}).contiguous(), {-1})));
  double total = 0;
  for (const double v : x.to_vector()) total += v;
  EXPECT_NEAR(sum(x).item(), total, 1e-11);
  EXPECT_TRUE(bits_equal(sum(scalar_tensor(3.0f), {0}), scalar_tensor(3.0f)));
}

TEST(Sum, ThreadsDoNotChangeBits) {
  const Tensor x = randn({200, 700});
  set_num_threads(1);
  const Tensor alone = sum(x, {1}), columns = sum(x, {0});
  set_num_threads(4);
  EXPECT_TRUE(bits_equal(sum(x, {1}), alone));
  EXPECT_TRUE(bits_equal(sum(x, {0}), columns));
  EXPECT_TRUE(bits_equal(sum(x[17]), alone[17]));
}

TEST(Sum, IntegersAndBoolsInI64) {
  EXPECT_EQ(sum(tensor<bool>({true, false, true, true})).item_int(), 3);
  EXPECT_EQ(sum(tensor<bool>({true, false})).dtype(), Dtype::i64);
  EXPECT_EQ(sum(tensor<std::int32_t>({2000000000, 2000000000})).item_int(), 4000000000);
  EXPECT_EQ(sum(tensor<std::int64_t>({1, 2, 3, 4}, {2, 2}), {0}).to_int_vector(), (std::vector<std::int64_t>{4, 6}));
}

TEST(Sum, HalfFloatsInF32RoundedOnce) {
  const Tensor x = randn({5, 1000});
  for (const Dtype dtype : {Dtype::bf16, Dtype::f16}) {
    const Tensor half = x.to(dtype), wide = half.to(Dtype::f32);
    EXPECT_TRUE(bits_equal(sum(half, {1}), sum(wide, {1}).to(dtype)));
    EXPECT_TRUE(bits_equal(mean(half, {1}), mean(wide, {1}).to(dtype)));
    EXPECT_TRUE(bits_equal(softmax(half, 1), softmax(wide, 1).to(dtype)));
  }
}

TEST(Reductions, EmptyTensorsAsTorch) {
  const Tensor none = empty({0}), rows = empty({0, 3}), columns = empty({3, 0});
  EXPECT_EQ(sum(none).item(), 0);
  EXPECT_FALSE(std::signbit(sum(none).item()));
  EXPECT_TRUE(std::isnan(mean(none).item()));
  EXPECT_TRUE(std::isnan(var(none).item()));
  EXPECT_TRUE(std::isnan(var(ones({1})).item()));
  EXPECT_EQ(sum(rows, {0}).to_vector(), std::vector<double>(3, 0.0));
  EXPECT_EQ(sum(rows, {1}).sizes(), Dims({0}));
  EXPECT_EQ(softmax(columns, 1).sizes(), Dims({3, 0}));
  EXPECT_EQ(max(rows, 1).first.sizes(), Dims({0}));
  EXPECT_THROW(max(none), ValueError);
  EXPECT_THROW(argmax(columns, 1), ValueError);
  EXPECT_TRUE(all(none));
  EXPECT_FALSE(any(none));
}

TEST(Reductions, AgainstF64) {
  const Tensor x = randn({6, 50}), wide = x.to(Dtype::f64);
  EXPECT_TRUE(within(mean(x, {1}).to(Dtype::f64), mean(wide, {1}), 1e-7));
  EXPECT_TRUE(within(var(x, {1}).to(Dtype::f64), var(wide, {1}), 1e-6));
  std::vector<double> expected;
  for (int r = 0; r < 6; ++r) {
    double middle = 0, squares = 0;
    for (const double v : wide[r].to_vector()) middle += v / 50;
    for (const double v : wide[r].to_vector()) squares += (v - middle) * (v - middle);
    expected.push_back(squares / 49);
  }
  EXPECT_TRUE(within(var(wide, {1}), tensor<double>(expected), 1e-12));
  EXPECT_TRUE(within(var(wide, {1}, false), tensor<double>(expected) * (49.0 / 50), 1e-12));
}

TEST(Norm, EveryOrder) {
  const Tensor x = tensor<float>({3, -4, 0, 0}, {2, 2});
  EXPECT_EQ(norm(x).item(), 5);
  EXPECT_EQ(norm(x, 1).item(), 7);
  EXPECT_EQ(norm(x, 0).item(), 2);
  EXPECT_EQ(norm(x, INFINITY).item(), 4);
  EXPECT_EQ(norm(x, -INFINITY, {1}).to_vector(), (std::vector<double>{3, 0}));
  EXPECT_NEAR(norm(x, 3).item(), std::cbrt(91.0), 1e-6);
  EXPECT_EQ(norm(x, 2, {1}, true).sizes(), Dims({2, 1}));
  EXPECT_TRUE(std::isnan(norm(tensor<float>({1, NAN}), INFINITY).item()));
  EXPECT_THROW(norm(empty({0}), INFINITY), ValueError);
}

TEST(Norm, ZeroHasNoSign) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16})
    for (const double p : {-HUGE_VAL, -2.0, 0.0, 0.5, 1.0, 2.0, 3.0, HUGE_VAL}) {
      Tensor x = tensor<float>({-0.0F, 0, -0.0F, -0.0F, 1, -2}, {3, 2}).to(dtype);
      for (const Dims& dims : {Dims{}, Dims{0}, Dims{1}})
        for (const double value : norm(x, p, dims).to_vector()) EXPECT_FALSE(std::signbit(value)) << p << ' ' << x;
      x = x.narrow(0, 0, 2);
      EXPECT_EQ(norm(x, p).item(), 0) << p;
      EXPECT_FALSE(std::signbit(norm(x, p).item())) << p;
    }
  const Tensor x = tensor<float>({1, -2, 0, 2});
  EXPECT_TRUE(same_bits(norm(x, -INFINITY), zeros({})));
}

TEST(Extremes, FirstOfEqualsAndNaNIsTheLargest) {
  const Tensor x = tensor<float>({1, 5, 5, 2, NAN, 9, -1, NAN}, {2, 4});
  const auto [values, indices] = max(x, 1);
  EXPECT_EQ(values.to_vector()[0], 5);
  EXPECT_TRUE(std::isnan(values.to_vector()[1]));
  EXPECT_EQ(indices.to_int_vector(), (std::vector<std::int64_t>{1, 0}));
  EXPECT_EQ(max(x, 0, true).first.sizes(), Dims({1, 4}));
  EXPECT_TRUE(std::isnan(max(x).item()));
  EXPECT_TRUE(std::isnan(min(x).item()));
  EXPECT_EQ(argmax(x).item_int(), 4);
  EXPECT_EQ(argmax(x[0], 0).item_int(), 1);
  EXPECT_EQ(min(tensor<std::int64_t>({3, -7, 2})).item_int(), -7);
  EXPECT_EQ(max(tensor<std::int64_t>({(std::int64_t{1} << 60) + 1, std::int64_t{1} << 60})).item_int(),
            (std::int64_t{1} << 60) + 1);
}

TEST(Cumsum, ChainsAlongTheDim) {
  const Tensor x = tensor<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(cumsum(x, 1).to_vector(), (std::vector<double>{1, 3, 6, 4, 9, 15}));
  EXPECT_EQ(cumsum(x, 0).to_vector(), (std::vector<double>{1, 2, 3, 5, 7, 9}));
  EXPECT_EQ(cumsum(tensor<bool>({true, true}), 0).dtype(), Dtype::i64);
}

TEST(Reductions, LongSumsAndSumsOfColumnsKeepTheOrder) {
  for (const std::int64_t n : {1 << 18, (1 << 18) + 1, 300000, 1000003}) {
    const Tensor x = randn({n});
    const auto values = x.to_vector();
    EXPECT_EQ(static_cast<float>(x.sum().item()), row_sum({values.begin(), values.end()})) << n;
    EXPECT_TRUE(bits_equal(x.sum(), sum(x.reshape({n, 1}).expand({n, 2}), {0})[0])) << n;
  }
  const Tensor x = randn({2, 5000, 150}), columns = sum(x, {1});
  for (int i = 0; i < 2; ++i)
    for (int c = 0; c < 150; ++c) ASSERT_TRUE(bits_equal(columns[i][c], x[i].select(1, c).contiguous().sum())) << c;
}

TEST(Compare, CloseAndSameBits) {
  const Tensor a = tensor<float>({1, -0.0f, NAN}), b = tensor<float>({1, 0.0f, NAN});
  EXPECT_FALSE(same_bits(a, b));
  EXPECT_TRUE(same_bits(a, a.clone()));
  EXPECT_TRUE(same_bits(a.slice(0, 2), neg(b.slice(0, 2))));
  EXPECT_FALSE(same_bits(a, a.reshape({3, 1})));
  EXPECT_FALSE(same_bits(a, a.to(Dtype::f64)));
  EXPECT_FALSE(allclose(a, b));
  EXPECT_TRUE(allclose(a, b, 1e-5, 1e-8, true));
  EXPECT_TRUE(allclose(tensor<float>({INFINITY, 1}), tensor<float>({INFINITY, 1.000001f})));
  EXPECT_FALSE(allclose(tensor<float>({INFINITY}), tensor<float>({-INFINITY})));
  EXPECT_THROW(allclose(a, a.to(Dtype::f64)), DtypeError);
}

TEST(Reductions, ErrorsSayWhatIsNeeded) {
  EXPECT_EQ(error_of<DtypeError>([] { mean(zeros({2}, Dtype::i64)); }),
            "mean: x is i64; it must be f32, f64, bf16 or f16");
  EXPECT_EQ(error_of<ShapeError>([] { sum(zeros({2, 3}), {0, -2}); }),
            "sum: dims [0, -2] name dim 0 twice; each may come once");
  EXPECT_EQ(error_of<ShapeError>([] { sum(zeros({2, 3}), {2}); }),
            "sum: dim 2 of a tensor of rank 2; it must be from -2 to 1");
  EXPECT_EQ(error_of<ValueError>([] { max(empty({0, 2})); }),
            "max: x has shape [0, 2]; it needs at least one element to choose from");
  EXPECT_EQ(error_of<ShapeError>([] { layer_norm(zeros({2, 3}), {2}); }),
            "layer_norm: normalized_shape [2] does not end the shape of x [2, 3]; its dims must be x's last ones");
  EXPECT_EQ(error_of<ShapeError>([] { sum(zeros({2, 3}), {0}, false, zeros({2})); }),
            "sum: out has shape [2]; it must be [3]");
}

}  // namespace
}  // namespace attn
