// tests/kernels/rows_target_test.cc: sums, softmax and norms of rows and columns have the bits of the specification on
// every instruction set.
#include "kernels/reference.h"
#include "kernels/row_targets.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <utility>
#include <vector>

namespace attn::kernels {
namespace {

class EveryRowTarget : public RowTargetTest {};

template <typename T>
void compare_rows(const RowTarget& target, const std::vector<T>& x) {
  const auto n = static_cast<std::int64_t>(x.size());
  for (const RowOp op :
       {RowOp::sum, RowOp::sum_of_squares, RowOp::sum_of_absolutes, RowOp::max, RowOp::softmax, RowOp::log_softmax}) {
    std::vector<T> ours(x.size() + 1, T(5)), expected = ours;
    target.row(op, element_for<T>, x.data(), 1, ours.data(), 1, n);
    reference().row(op, element_for<T>, x.data(), 1, expected.data(), 1, n);
    EXPECT_TRUE(same_bytes(ours, expected, x.empty() ? ours : x)) << "operation " << static_cast<int>(op) << " n " << n;
    std::fill(ours.begin(), ours.end(), T(5));
    target.row_to_memory(op, element_for<T>, x.data(), 1, ours.data(), 1, n);
    EXPECT_TRUE(same_bytes(ours, expected, x.empty() ? ours : x))
        << "to memory: operation " << static_cast<int>(op) << " n " << n;
  }
  std::vector<T> ours(2), expected(2);
  target.moments_row(element_for<T>, x.data(), 1, n, &ours[0], &ours[1]);
  reference().moments_row(element_for<T>, x.data(), 1, n, &expected[0], &expected[1]);
  EXPECT_TRUE(same_bytes(ours, expected, expected)) << "moments, n " << n;
  for (const bool affine : {false, true}) {
    std::vector<T> y(x.size() + 1, T(5)), same = y, weight = x, bias = x;
    for (T& b : bias) b = T(1) - b;
    target.layer_norm_row(element_for<T>, x.data(), affine ? weight.data() : nullptr, affine ? bias.data() : nullptr,
                          1e-5, y.data(), n);
    reference().layer_norm_row(element_for<T>, x.data(), affine ? weight.data() : nullptr,
                               affine ? bias.data() : nullptr, 1e-5, same.data(), n);
    EXPECT_TRUE(same_bytes(y, same, x.empty() ? y : x)) << "layer norm, n " << n;
    std::fill(y.begin(), y.end(), T(5));
    target.layer_norm_row_to_memory(element_for<T>, x.data(), affine ? weight.data() : nullptr,
                                    affine ? bias.data() : nullptr, 1e-5, y.data(), n);
    EXPECT_TRUE(same_bytes(y, same, x.empty() ? y : x)) << "layer norm to memory, n " << n;
    const std::vector<T> dy(x.rbegin(), x.rend());
    for (const bool rms : {false, true}) {
      std::vector<T> dx(x.size() + 1, T(5)), dx_expected = dx, sums[2] = {dx, dx}, expected_sums[2] = {dx, dx};
      NormGradientRow row{.element = element_for<T>,
                          .rms = rms,
                          .n = n,
                          .eps = 1e-5,
                          .x = x.data(),
                          .dy = dy.data(),
                          .weight = affine ? weight.data() : nullptr,
                          .dx = dx.data()};
      if (affine) row.weight_sums = sums[0].data(), row.bias_sums = sums[1].data();
      target.norm_gradient_row(row);
      row.dx = dx_expected.data();
      if (affine) row.weight_sums = expected_sums[0].data(), row.bias_sums = expected_sums[1].data();
      reference().norm_gradient_row(row);
      EXPECT_TRUE(same_bytes(dx, dx_expected, x.empty() ? y : x)) << "gradient of a norm, rms " << rms << ", n " << n;
      for (int s = 0; s < 2; ++s)
        for (std::size_t i = 0; i < dx.size(); ++i) {  // any NaN
          const T ours = sums[s][i], expected = expected_sums[s][i];
          EXPECT_TRUE(ours == expected || (ours != ours && expected != expected)) << i;
        }
    }
    target.rms_norm_row(element_for<T>, x.data(), affine ? weight.data() : nullptr, 1e-6, y.data(), n);
    reference().rms_norm_row(element_for<T>, x.data(), affine ? weight.data() : nullptr, 1e-6, same.data(), n);
    EXPECT_TRUE(same_bytes(y, same, x.empty() ? y : x)) << "rms norm, n " << n;
    std::fill(y.begin(), y.end(), T(5));
    target.rms_norm_row_to_memory(element_for<T>, x.data(), affine ? weight.data() : nullptr, 1e-6, y.data(), n);
    EXPECT_TRUE(same_bytes(y, same, x.empty() ? y : x)) << "rms norm to memory, n " << n;
  }
}

TEST_P(EveryRowTarget, RowsHaveTheBitsOfTheSpecification) {
  std::mt19937 random(4);
  std::normal_distribution<double> value(0, 5);
  for (const std::int64_t n : {0, 1, 2, 7, 8, 15, 16, 17, 31, 63, 64, 100, 768, 1000, 4095, 4096, 4097, 9001, 40000}) {
    std::vector<float> x(static_cast<std::size_t>(n));
    for (float& v : x) v = static_cast<float>(value(random));
    compare_rows(target(), x);
    compare_rows(target(), std::vector<double>(x.begin(), x.end()));
  }
}

TEST_P(EveryRowTarget, RowsWithNanInfinityAndZeros) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::vector<float>& few : {std::vector<float>{nan},
                                        {inf},
                                        {-inf},
                                        {-inf, 1},
                                        {inf, -inf, 2},
                                        {-0.0f},
                                        {-0.0f, 0},
                                        {1e30f, -1e30f, 3},
                                        {inf, nan}})
    for (const std::size_t n : {few.size(), std::size_t{40}, std::size_t{5000}}) {
      std::vector<float> x(n);
      for (std::size_t i = 0; i < n; ++i) x[i] = few[i % few.size()];
      compare_rows(target(), x);
      compare_rows(target(), std::vector<double>(x.begin(), x.end()));
      std::vector<float> one(n, 0.5f);
      one[n / 2] = few[0];
      compare_rows(target(), one);
    }
}

TEST_P(EveryRowTarget, SumsOfColumnsAreSumsOfRows) {
  std::mt19937 random(6);
  std::normal_distribution<float> value(0, 5);
  for (const std::int64_t n : {0, 1, 15, 16, 33, 4096, 4100, 13000})
    for (const std::int64_t columns : {1, 16, 37, 64, 150}) {
      std::vector<float> x(static_cast<std::size_t>(n * (columns + 3)));
      for (float& v : x) v = value(random);
      std::vector<float> ours(static_cast<std::size_t>(columns)), expected = ours;
      target().sum_columns(Element::f32, x.data(), columns + 3, n, ours.data(), columns);
      for (std::int64_t c = 0; c < columns; ++c)
        reference().row(RowOp::sum, Element::f32, x.data() + c, columns + 3, &expected[static_cast<std::size_t>(c)], 1,
                        n);
      EXPECT_TRUE(same_bytes(ours, expected, expected)) << n << " rows, " << columns << " columns";
      std::vector<std::uint16_t> halves(x.size());
      target().narrow(Element::bf16, x.data(), halves.data(), static_cast<std::int64_t>(x.size()));
      target().widen(Element::bf16, halves.data(), x.data(), static_cast<std::int64_t>(x.size()));
      target().sum_columns(Element::bf16, halves.data(), columns + 3, n, ours.data(), columns);
      target().sum_columns(Element::f32, x.data(), columns + 3, n, expected.data(), columns);
      EXPECT_TRUE(same_bytes(ours, expected, expected)) << "bf16: " << n << " rows, " << columns << " columns";
    }
}

TEST_P(EveryRowTarget, SoftmaxOfColumnsIsSoftmaxOfRows) {
  std::mt19937 random(7);
  std::normal_distribution<float> value(0, 5);
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const auto compare = [&]<typename T>(T) {
    for (const std::int64_t n : {1, 2, 15, 16, 33, 200, 4100})
      for (const std::int64_t columns : {1, 7, 16, 37})
        for (const RowOp op : {RowOp::softmax, RowOp::log_softmax}) {
          const std::int64_t x_stride = columns + 3, y_stride = columns + 1;
          std::vector<T> x(static_cast<std::size_t>(n * x_stride));
          for (T& v : x) v = value(random);
          for (const auto& [column, special] : {std::pair{0, nan}, {1, inf}, {3, -inf}, {4, -0.0f}})
            if (column < columns) x[static_cast<std::size_t>(n / 2 * x_stride + column)] = special;
          for (std::int64_t i = 0; columns > 5 && i < n; ++i) x[static_cast<std::size_t>(i * x_stride + 5)] = -inf;
          std::vector<T> ours(static_cast<std::size_t>(n * y_stride), T(9)), expected = ours, in_place = x, apart = x;
          target().softmax_columns(op, element_for<T>, x.data(), x_stride, ours.data(), y_stride, n, columns);
          target().softmax_columns(op, element_for<T>, in_place.data(), x_stride, in_place.data(), x_stride, n,
                                   columns);
          for (std::int64_t c = 0; c < columns; ++c) {
            reference().row(op, element_for<T>, x.data() + c, x_stride, expected.data() + c, y_stride, n);
            reference().row(op, element_for<T>, x.data() + c, x_stride, apart.data() + c, x_stride, n);
          }
          EXPECT_TRUE(same_bytes(ours, expected, x)) << n << " rows, " << columns << " columns";
          EXPECT_TRUE(same_bytes(in_place, apart, x)) << "in place: " << n << " rows, " << columns << " columns";
        }
  };
  compare(float{});
  compare(double{});
}

TEST_P(EveryRowTarget, StreamsEveryByteAndNoOther) {
  std::vector<unsigned char> from(5000), to(5200);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<unsigned char>(i * 7 + i / 256);
  for (const std::size_t at : {0, 1, 4, 63, 64, 100})
    for (const std::size_t bytes : {0, 1, 63, 64, 65, 200, 4096, 4999}) {
      std::fill(to.begin(), to.end(), static_cast<unsigned char>(0xEE));
      target().stream(from.data() + 1, to.data() + at, static_cast<std::int64_t>(bytes));
      for (std::size_t i = 0; i < to.size(); ++i)
        ASSERT_EQ(to[i], i >= at && i < at + bytes ? from[i - at + 1] : 0xEE) << at << " " << bytes << " " << i;
    }
}

INSTANTIATE_TEST_SUITE_P(Targets, EveryRowTarget, ::testing::ValuesIn(vector_targets()),
                         [](const auto& info) { return info.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EveryRowTarget);

}  // namespace
}  // namespace attn::kernels
