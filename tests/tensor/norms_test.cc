// tests/tensor/norms_test.cc: rms_norm beside torch's figures, in every dtype, from any strides; errors.
#include <attn/random.h>

#include "support/errors.h"
#include "support/golden.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

namespace attn {
namespace {

using testing::bits_equal;
using testing::error_of;
using testing::golden_tensor;

TEST(RmsNorm, IsTorchs) {
  for (const auto& c : testing::golden("norms/rms_norm.json").at("cases")) {
    const auto& inputs = c.at("inputs");
    const Dims shape(c.at("options").at("normalized_shape").get<std::vector<std::int64_t>>());
    const Tensor weight = inputs.contains("weight") ? golden_tensor(inputs.at("weight")) : Tensor();
    const std::optional<double> eps =
        c.at("options").contains("eps") ? std::optional(c.at("options").at("eps").get<double>()) : std::nullopt;
    const Tensor ours = rms_norm(golden_tensor(inputs.at("input")), shape, weight, eps);
    EXPECT_TRUE(testing::within_error_rule(ours, golden_tensor(c.at("expect").at("output")),
                                           c.at("torch_error_vs_float64").get<double>()))
        << c.at("name");
  }
}

TEST(RmsNorm, StridesAndHalfFloatsChangeNoBit) {
  const Tensor x = randn({3, 4, 100}), weight = randn({100}), y = rms_norm(x, {100}, weight);
  EXPECT_TRUE(bits_equal(rms_norm(x.transpose(0, 1), {100}, weight), y.transpose(0, 1)));
  EXPECT_TRUE(bits_equal(rms_norm(x[1][2], {100}, weight), y[1][2]));
  EXPECT_TRUE(bits_equal(rms_norm(x, {100}), rms_norm(x, {100}, ones({100}))));
  for (const Dtype dtype : {Dtype::bf16, Dtype::f16}) {
    const Tensor half = x.to(dtype), wide = half.to(Dtype::f32);
    EXPECT_TRUE(bits_equal(rms_norm(half, {100}, weight), rms_norm(wide, {100}, weight).to(dtype)));
    EXPECT_TRUE(bits_equal(rms_norm(half, {100}), rms_norm(wide, {100}).to(dtype)));  // the eps of f32
  }
  EXPECT_EQ(rms_norm(zeros({0, 4}), {4}).sizes(), (Dims{0, 4}));
  EXPECT_TRUE(std::isnan(rms_norm(full({1, 3}, INFINITY), {3})[0][0].item()));
}

TEST(RmsNorm, ErrorsSayWhatIsNeeded) {
  EXPECT_EQ(error_of<ShapeError>([] { rms_norm(zeros({2, 3}), {2}); }),
            "rms_norm: normalized_shape [2] does not end the shape of x [2, 3]; its dims must be x's last ones");
  EXPECT_EQ(error_of<ShapeError>([] { rms_norm(zeros({2, 3}), {3}, zeros({2})); }),
            "rms_norm: weight has shape [2]; it must be normalized_shape [3]");
  EXPECT_EQ(error_of<DtypeError>([] { rms_norm(zeros({2}, Dtype::i64), {2}); }),
            "rms_norm: x is i64; it must be f32, f64, bf16 or f16");
}

/// Gradients of weight and bias hold the canonical NaN too: of one row, of a block of rows and of several.
TEST(Norms, GradientsHoldTheCanonicalNan) {
  for (const std::int64_t rows : {0, 1, 3, 4097})
    for (const bool rms : {false, true}) {
      Tensor x = randn(rows == 0 ? Dims{5} : Dims{rows, 5}), dy = ones(x.sizes());
      const Tensor first = dy.reshape({-1, 5}).select(0, 0), last = dy.reshape({-1, 5}).select(0, -1);
      first.fill_(INFINITY);
      last.fill_(rows > 1 ? -INFINITY : INFINITY);
      if (rows <= 1) x.reshape({-1, 5}).select(0, 0).fill_(0);  // infinity times a zero
      const Tensor weight = ones({5}).requires_grad_(), bias = zeros({5}).requires_grad_();
      x.requires_grad_();
      const Tensor y = rms ? rms_norm(x, {5}, weight) : layer_norm(x, {5}, weight, bias);
      y.backward(dy);
      for (const Tensor& g : {x.grad(), weight.grad(), bias.grad()})
        for (std::int64_t n = 0; g.defined() && n < g.numel(); ++n) {
          const float value = g.data<float>()[n];
          if (std::isnan(value)) { EXPECT_EQ(std::bit_cast<std::uint32_t>(value), 0x7FC00000u) << rows << " " << rms; }
        }
    }
}

}  // namespace
}  // namespace attn
