// tests/tensor/convert_test.cc: every bf16 and f16 pattern there and back, roundings by known cases, conversions by
// copies.
#include <attn/ops.h>

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace attn {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity();

template <typename Half>
void every_pattern_round_trips() {
  for (std::uint32_t pattern = 0; pattern < 0x10000; ++pattern) {
    Half half;
    half.bits = static_cast<std::uint16_t>(pattern);
    const float wide = static_cast<float>(half);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(Half(wide)))) << pattern;
    } else {
      EXPECT_EQ(Half(wide).bits, pattern);
    }
  }
}

TEST(Convert, EveryBfloat16PatternRoundTrips) { every_pattern_round_trips<bfloat16>(); }
TEST(Convert, EveryFloat16PatternRoundTrips) { every_pattern_round_trips<float16>(); }

/// The neighbour of a half-way point decides; the point itself goes to the even pattern.
template <typename Half>
void rounds_to_nearest_even(std::uint16_t first, std::uint16_t last) {
  for (std::uint32_t pattern = first; pattern < last; ++pattern) {
    Half low, high;
    low.bits = static_cast<std::uint16_t>(pattern);
    high.bits = static_cast<std::uint16_t>(pattern + 1);
    const double middle =
        (static_cast<double>(static_cast<float>(low)) + static_cast<double>(static_cast<float>(high))) / 2;
    const float tie = static_cast<float>(middle);
    ASSERT_EQ(static_cast<double>(tie), middle);
    EXPECT_EQ(Half(tie).bits, pattern % 2 ? high.bits : low.bits) << pattern;
    EXPECT_EQ(Half(std::nextafter(tie, 0.f)).bits, low.bits) << pattern;
    EXPECT_EQ(Half(std::nextafter(tie, inf)).bits, high.bits) << pattern;
    EXPECT_EQ(Half(-std::nextafter(tie, inf)).bits, high.bits | 0x8000) << pattern;
  }
}

TEST(Convert, Float16RoundsToNearestEvenDenormalsIncluded) { rounds_to_nearest_even<float16>(0, 0x7bff); }
TEST(Convert, Bfloat16RoundsToNearestEven) { rounds_to_nearest_even<bfloat16>(0x0080, 0x7f7f); }

TEST(Convert, Extremes) {
  EXPECT_EQ(float16(65519.996f).bits, 0x7bff);
  EXPECT_EQ(float16(65520.f).bits, 0x7c00);
  EXPECT_EQ(float16(-1e30f).bits, 0xfc00);
  EXPECT_EQ(float16(inf).bits, 0x7c00);
  EXPECT_EQ(float16(0x1p-25f).bits, 0x0000);
  EXPECT_EQ(float16(-0x1p-26f).bits, 0x8000);
  EXPECT_EQ(bfloat16(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_EQ(bfloat16(-inf).bits, 0xff80);
  EXPECT_EQ(bfloat16(-0.f).bits, 0x8000);
  EXPECT_TRUE(std::isnan(static_cast<float>(bfloat16(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_TRUE(std::isnan(static_cast<float>(float16(std::bit_cast<float>(0x7f800001u)))));
}

TEST(Convert, BetweenDtypes) {
  const Tensor x = tensor<double>({-2.75, 0.0, 0.5, 3.999, 1e10, std::nan("")});
  EXPECT_EQ(x.to(Dtype::i64).to_int_vector(),
            (std::vector<std::int64_t>{-2, 0, 0, 3, 10000000000, std::numeric_limits<std::int64_t>::min()}));
  EXPECT_EQ(x.to(Dtype::i32).to_int_vector()[4], std::numeric_limits<std::int32_t>::min());
  EXPECT_EQ(x.to(Dtype::boolean).to_int_vector(), (std::vector<std::int64_t>{1, 0, 1, 1, 1, 1}));
  EXPECT_EQ(x.to(Dtype::bf16).to(Dtype::f32).to_vector()[3], 4.0);
  EXPECT_EQ(x.to(Dtype::f64).impl(), x.impl());
  EXPECT_EQ(tensor<std::int64_t>({std::int64_t{1} << 60}).to(Dtype::i32).item_int(), 0);
}

TEST(Convert, Names) {
  EXPECT_EQ(dtype_from_name("bfloat16"), Dtype::bf16);
  EXPECT_EQ(dtype_from_name("i32"), Dtype::i32);
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16, Dtype::i64, Dtype::i32, Dtype::boolean}) {
    EXPECT_EQ(dtype_from_name(name_of(dtype)), dtype);
    EXPECT_EQ(dtype_from_name(torch_name_of(dtype)), dtype);
    EXPECT_EQ(empty({1}, dtype).dtype(), dtype);
  }
  try {
    dtype_from_name("float8");
    FAIL();
  } catch (const ValueError& error) {
    EXPECT_STREQ(error.what(),
                 "dtype_from_name: \"float8\" is no dtype; there are f32 (float32), f64 (float64), bf16 (bfloat16), "
                 "f16 (float16), "
                 "i64 (int64), i32 (int32), bool");
  }
}

}  // namespace
}  // namespace attn
