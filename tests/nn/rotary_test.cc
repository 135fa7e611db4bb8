// tests/nn/rotary_test.cc: rotary embedding against transformers: frequencies, tables, rotated rows; strides, half
// floats, errors.
#include <attn/nn.h>
#include <attn/ops.h>
#include <attn/random.h>

#include "support/errors.h"
#include "support/golden.h"

#include <gtest/gtest.h>

#include <limits>

namespace attn::nn {
namespace {

using testing::golden_tensor;

RotaryEmbedding module_of(const nlohmann::json& recorded) {
  RotaryEmbeddingOptions options{.theta = recorded.at("theta").get<double>()};
  if (const auto& s = recorded.at("scaling"); !s.is_null())
    options.scaling = {s.at("factor").get<double>(), s.at("low_freq_factor").get<double>(),
                       s.at("high_freq_factor").get<double>(),
                       s.at("original_max_position_embeddings").get<std::int64_t>()};
  return RotaryEmbedding(recorded.at("dim").get<std::int64_t>(), options);
}

/// Within `ulps` units in the last place of the larger of the two.
void expect_ulps(const Tensor& ours, const Tensor& theirs, double ulps) {
  const Tensor bound = maximum(abs(ours), abs(theirs)) * (ulps * 0x1p-23);
  EXPECT_TRUE(all(le(abs(ours - theirs), bound))) << ours.to_string() << theirs.to_string();
}

TEST(Rotary, AsTransformers) {
  int cases = 0;
  for (const auto& recorded : testing::golden("model/rotary.json")) {
    const RotaryEmbedding module = module_of(recorded);
    const Tensor positions = tensor<std::int64_t>(recorded.at("positions").get<std::vector<std::int64_t>>());
    const Tensor cos = golden_tensor(recorded.at("cos")), sin = golden_tensor(recorded.at("sin")),
                 x = golden_tensor(recorded.at("x")), y = golden_tensor(recorded.at("y"));
    // Theirs is a power of f32 and a quotient, each rounded.
    expect_ulps(module.frequencies, golden_tensor(recorded.at("frequencies")), 2);
    EXPECT_TRUE(testing::bits_equal(rotary(x, cos, sin), y));
    // An angle p f that is off by two ulps rotates by that much.
    const double angle = 900 * 2 * 0x1p-23 + 4 * 0x1p-24;
    EXPECT_TRUE(testing::within(module.tables(positions).cos, cos, angle));
    EXPECT_TRUE(testing::within(module.tables(positions).sin, sin, angle));
    EXPECT_TRUE(testing::within(module(x, positions), y, 2 * angle * max(abs(x)).item()));
    ++cases;
  }
  EXPECT_EQ(cases, 3);
}

TEST(Rotary, ReadsAnyStridesAndPositionsOfEachSequence) {
  const RotaryEmbedding module(6);
  const Tensor x = randn({2, 5, 3, 6}).transpose(1, 2),
               positions = tensor<std::int64_t>({0, 1, 2, 3, 4, 7, 8, 9, 10, 11}, {2, 5});
  const Tensor y = module(x, positions);
  EXPECT_TRUE(same_bits(y, module(x.contiguous(), positions)));
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t t = 0; t < 5; ++t)
      EXPECT_TRUE(same_bits(y.narrow(0, b, 1).narrow(2, t, 1).contiguous(),
                            module(x.narrow(0, b, 1).narrow(2, t, 1), positions[b].narrow(0, t, 1))));
  const Tensor columns = randn({2, 3, 6, 5}).transpose(2, 3);
  EXPECT_TRUE(same_bits(module(columns, positions), module(columns.contiguous(), positions)));
}

TEST(Rotary, HalfFloatsAreRoundedOnce) {
  const RotaryEmbedding module(8);
  const Tensor positions = arange(0, 4);
  for (const Dtype dtype : {Dtype::bf16, Dtype::f16}) {
    const Tensor x = randn({1, 2, 4, 8}).to(dtype);
    EXPECT_TRUE(same_bits(module(x, positions), module(x.to(Dtype::f32), positions).to(dtype)));
  }
}

TEST(Rotary, PositionZeroTurnsNothingAndTurningKeepsLengths) {
  const RotaryEmbedding module(64);
  const Tensor x = randn({1, 1, 3, 64}, Dtype::f64);
  const Tensor y = module(x, tensor<std::int64_t>({0, 5, 1000}));
  EXPECT_TRUE(same_bits(y.select(2, 0), x.select(2, 0)));
  EXPECT_TRUE(allclose(norm(y, 2, {-1}), norm(x, 2, {-1}), 1e-12));
}

TEST(Rotary, Errors) {
  using testing::error_of;
  EXPECT_EQ(error_of<ValueError>([] { RotaryEmbedding(5); }),
            "RotaryEmbedding: dim is 5; it must be even and at least 2");
  const auto with_theta = [](double theta) {
    return error_of<ValueError>([&] { RotaryEmbedding(4, {.theta = theta}); });
  };
  EXPECT_EQ(with_theta(0), "RotaryEmbedding: theta is 0; it must be above 0, and finite");
  EXPECT_EQ(with_theta(-10000), "RotaryEmbedding: theta is -10000; it must be above 0, and finite");
  EXPECT_EQ(with_theta(std::numeric_limits<double>::infinity()),
            "RotaryEmbedding: theta is inf; it must be above 0, and finite");
  EXPECT_EQ(with_theta(std::numeric_limits<double>::quiet_NaN()),
            "RotaryEmbedding: theta is nan; it must be above 0, and finite");
  EXPECT_EQ(with_theta(1e-100), "RotaryEmbedding: theta is 1e-100; frequency 1 is inf in f32, it must be finite");
  const auto with_scaling = [](RotaryScaling scaling) {
    return error_of<ValueError>([&] { RotaryEmbedding(4, {.scaling = scaling}); });
  };
  EXPECT_EQ(with_scaling({.factor = 1e-50, .original_context = 100}),
            "RotaryEmbedding: theta is 10000, scaling's factor 1e-50; frequency 1 is inf in f32, it must be finite");
  const std::string needed = "; they must be above 0, and high_frequency no less than low_frequency",
                    begin = "RotaryEmbedding: scaling has factor ";
  EXPECT_EQ(with_scaling({.factor = 0}),
            begin + "0, low_frequency 1, high_frequency 4, original_context 8192" + needed);
  EXPECT_EQ(with_scaling({.low_frequency = 5}),
            begin + "8, low_frequency 5, high_frequency 4, original_context 8192" + needed);
  EXPECT_EQ(with_scaling({.original_context = -1}),
            begin + "8, low_frequency 1, high_frequency 4, original_context -1" + needed);
  EXPECT_EQ(error_of<ShapeError>([] { RotaryEmbedding(4)(zeros({2, 3, 4}), arange(0, 3)); }),
            "RotaryEmbedding: x has shape [2, 3, 4], positions [3]; they must be [B, H, T, 4] and [T] or [B, T]");
  EXPECT_EQ(error_of<ShapeError>([] { rotary(zeros({2, 3}), zeros({1}), zeros({1})); }),
            "rotary: x has shape [2, 3]; its last dim must be even");
  EXPECT_EQ(error_of<ShapeError>([] { rotary(zeros({2, 4}), zeros({3, 2}), zeros({2})); }),
            "rotary: shapes [3, 2] and [2, 2] do not broadcast; sizes must be equal or 1, counted from the last dim");
  EXPECT_EQ(error_of<ShapeError>([] { rotary(zeros({2, 4}), zeros({2}), zeros({5, 2, 2})); }),
            "rotary: sin has shape [5, 2, 2]; it must broadcast to [2, 2]");
  EXPECT_EQ(error_of<DtypeError>([] { rotary(zeros({2, 4}, Dtype::bf16), zeros({2}), zeros({2}, Dtype::bf16)); }),
            "rotary: sin is bf16; beside x in bf16 it must be f32");
}

}  // namespace
}  // namespace attn::nn
