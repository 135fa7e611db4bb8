// tests/tensor/promotion_test.cc: result types, roundings and special values as PyTorch gives them.
#include "support/golden.h"
#include "tensor/promote.h"

namespace attn::testing {
namespace {

constexpr Dtype all_dtypes[] = {Dtype::f32, Dtype::f64, Dtype::bf16,   Dtype::f16,
                                Dtype::i64, Dtype::i32, Dtype::boolean};

TEST(Promotion, OfTensors) {
  const auto& table = golden("torch_promotion.json").at("tensors");
  for (const Dtype a : all_dtypes) {
    for (const Dtype b : all_dtypes) {
      const std::string key = std::string(name_of(a)) + " " + std::string(name_of(b));
      const auto& expected = table.at(key);
      const Tensor wide_a = ones({2}, a), wide_b = ones({2}, b), one_a = ones({}, a), one_b = ones({}, b);
      EXPECT_EQ(name_of(add(wide_a, wide_b).dtype()), expected[0].get<std::string>()) << key;
      EXPECT_EQ(name_of(mul(wide_a, one_b).dtype()), expected[1].get<std::string>()) << key;
      EXPECT_EQ(name_of(mul(one_b, wide_a).dtype()), expected[1].get<std::string>()) << key;
      EXPECT_EQ(name_of(maximum(one_a, one_b).dtype()), expected[2].get<std::string>()) << key;
      EXPECT_EQ(name_of(div(wide_a, wide_b).dtype()), expected[3].get<std::string>()) << key;
      EXPECT_EQ(name_of(cat({wide_a, wide_b}).dtype()), expected[0].get<std::string>()) << key;
    }
  }
}

TEST(Promotion, WithNumbers) {
  const auto& table = golden("torch_promotion.json").at("scalars");
  const std::pair<const char*, Scalar> numbers[] = {{"float", 2.5}, {"int", 2}, {"bool", true}};
  for (const Dtype a : all_dtypes) {
    for (const auto& [kind, number] : numbers) {
      const std::string key = std::string(name_of(a)) + " " + kind;
      const auto& expected = table.at(key);
      const Tensor wide = ones({2}, a), condition = tensor<bool>({true, false});
      EXPECT_EQ(name_of(result_type(wide, number)), expected[0].get<std::string>()) << key;
      EXPECT_EQ(name_of(result_type(ones({}, a), number)), expected[1].get<std::string>()) << key;
      EXPECT_EQ(name_of(div(wide, number).dtype()), expected[2].get<std::string>()) << key;
      EXPECT_EQ(name_of(mul(wide, number).dtype()), expected[3].get<std::string>()) << key;
      EXPECT_EQ(name_of(where(condition, wide, number).dtype()), expected[4].get<std::string>()) << key;
    }
  }
}

/// What the golden file says `name` gives, bit for bit.
void expect_value(const std::string& name, const Tensor& ours) {
  SCOPED_TRACE(name);
  EXPECT_TRUE(bits_equal(ours, golden_tensor(golden("torch_promotion.json").at("values").at(name))));
}

/// The same within the error rule: torch's last bit depends on its vector width or its math library.
void expect_near(const std::string& name, const Tensor& ours) {
  SCOPED_TRACE(name);
  EXPECT_TRUE(within_error_rule(ours, golden_tensor(golden("torch_promotion.json").at("values").at(name)), 0));
}

TEST(Values, SixteenBitsBesideNumbers) {
  const Tensor threes = full({2}, 3, Dtype::bf16), large = full({2}, 256, Dtype::bf16);
  expect_value("bf16 [3,3] * 1.003", threes * 1.003);
  expect_value("bf16 [3,3] / 1.003", threes / 1.003);
  expect_value("bf16 [256,256] + 1.001", large + 1.001);
  expect_value("bf16 [256,256] - 1.001", large - 1.001);
  expect_value("1.001 - bf16 [256,256]", 1.001 - large);
}

TEST(Values, PowersAndQuotients) {
  const Tensor x = golden_tensor(golden("torch_promotion.json").at("values").at("x"));
  expect_value("2 / x", 2 / x);
  expect_value("1 - x", 1 - x);
  expect_value("x / 3", x / 3);
  expect_value("x ** 2", pow(x, 2));
  expect_value("x ** 3", pow(x, 3));
  const Tensor size = abs(x);
  expect_value("|x| ** -1", pow(size, -1));
  expect_value("|x| ** -2", pow(size, -2));
  expect_value("|x| ** 0", pow(size, 0));
  expect_value("|x| ** 1", pow(size, 1));
  expect_near("|x| ** 0.5", pow(size, 0.5));
  expect_near("|x| ** -0.5", pow(size, -0.5));
  expect_near("|x| ** 2.7", pow(size, 2.7));
  expect_value("int ** int",
               pow(tensor<std::int64_t>({-2, 3, 0, -1, 7, 2}), tensor<std::int64_t>({3, 0, 0, 5, 11, 63})));
  expect_value("i32 wrap", tensor<std::int32_t>({2147483647, -2147483647 - 1}) + tensor<std::int32_t>({1, -1}));
  expect_value("int / int", tensor<std::int64_t>({7, -7, 1, 0}) / tensor<std::int64_t>({2, 2, 3, 0}));
}

TEST(Values, CountedTensors) {
  expect_value("arange 0.1", arange(0, 1, 0.1));
  expect_value("arange -3", arange(10, -5, -3));
  expect_value("arange i32", arange(0, 5, 2, Dtype::i32));
  expect_near("arange long", arange(0, 100, 0.37));
  expect_value("arange bf16", arange(0, 3, 0.3, Dtype::bf16));
  expect_value("linspace 7", linspace(0, 1, 7));
  expect_near("linspace -2 3 100", linspace(-2, 3, 100));
  expect_near("linspace f64", linspace(-1, 2, 11, Dtype::f64));
  expect_value("linspace 1", linspace(4, 9, 1));
  expect_value("linspace i64", linspace(0, 10, 5, Dtype::i64));
}

TEST(Values, SpecialOnes) {
  const Tensor x = golden_tensor(golden("torch_promotion.json").at("values").at("special"));
  const Tensor flipped =
      tensor<float>({-1, 1, std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity(),
                     std::numeric_limits<float>::infinity(), -0.f, 0.f});
  expect_value("special relu", relu(x));
  expect_value("special bf16 relu", relu(x.to(Dtype::bf16)));
  expect_value("special abs", abs(x));
  expect_value("special neg", neg(x));
  expect_value("special sqrt", sqrt(x));
  expect_value("special isnan", isnan(x));
  expect_value("special isinf", isinf(x));
  expect_value("special maximum", maximum(x, flipped));
  expect_value("special minimum", minimum(x, flipped));
  expect_value("special eq", eq(x, x));
  expect_value("special lt", lt(x, flipped));
  expect_value("special not", logical_not(x));
  expect_value("special and", logical_and(x, flipped));
  expect_value("special or", logical_or(x, flipped));
}

}  // namespace
}  // namespace attn::testing
