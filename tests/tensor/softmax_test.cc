// tests/tensor/softmax_test.cc: torch's figures for softmax, layer norm, linear and the activations; strides and tails
// of softmax.
#include "support/golden.h"

#include <attn/random.h>

#include <gtest/gtest.h>

#include <cmath>

namespace attn {
namespace {

using testing::bits_equal;
using testing::golden_tensor;
using testing::within_error_rule;

const nlohmann::json& golden_case(std::string_view name) {
  for (const auto& c : testing::golden("torch_semantics.json").at("cases"))
    if (c.at("name") == name) return c;
  throw std::runtime_error("no golden case " + std::string(name));
}
Tensor input(const nlohmann::json& c, const char* name) {
  const auto& inputs = c.at("inputs");
  return inputs.contains(name) ? golden_tensor(inputs.at(name)) : Tensor();
}
::testing::AssertionResult agrees(const nlohmann::json& c, const Tensor& ours, const char* name = "output") {
  const auto& error = c.at("torch_error_vs_float64");
  return within_error_rule(ours, golden_tensor(c.at("expect").at(name)),
                           error.is_number() ? error.get<double>() : error.at(name).get<double>());
}

TEST(TorchFigures, Softmax) {
  for (const char* name : {"softmax dim -1", "softmax dim 0", "softmax with -inf, a row of -inf, +inf, NaN"}) {
    const auto& c = golden_case(name);
    EXPECT_TRUE(agrees(c, softmax(input(c, "input"), c.at("options").at("dim").get<int>()))) << name;
  }
  const auto& c = golden_case("log_softmax");
  EXPECT_TRUE(agrees(c, log_softmax(input(c, "input"), c.at("options").at("dim").get<int>())));
}

TEST(TorchFigures, LayerNorm) {
  for (const char* name : {"LayerNorm(4)", "LayerNorm((3,4)), eps 1e-3, no affine", "LayerNorm of a constant row"}) {
    const auto& c = golden_case(name);
    const Dims shape(c.at("options").at("normalized_shape").get<std::vector<std::int64_t>>());
    EXPECT_TRUE(agrees(c, layer_norm(input(c, "input"), shape, input(c, "weight"), input(c, "bias"),
                                     c.at("options").at("eps").get<double>())))
        << name;
  }
}

TEST(TorchFigures, Linear) {
  for (const char* name : {"Linear", "Linear without bias"}) {
    const auto& c = golden_case(name);
    EXPECT_TRUE(agrees(c, linear(input(c, "input"), input(c, "weight"), input(c, "bias")))) << name;
  }
}

TEST(TorchFigures, Gelu) {
  for (const auto& [name, approximate] :
       {std::pair{"GELU approximate=none", GeluApproximate::none}, {"GELU approximate=tanh", GeluApproximate::tanh}}) {
    const auto& c = golden_case(name);
    const Tensor ours = gelu(input(c, "input"), approximate), torch = golden_tensor(c.at("expect").at("output"));
    const Tensor finite = ours.slice(0, 0, 13);  // torch gives NaN at one or both infinities, where we give the limits
    EXPECT_TRUE(
        within_error_rule(finite, torch.slice(0, 0, 13), c.at("torch_error_vs_float64").at("output").get<double>()))
        << name;
    const auto ends = ours.slice(0, 13).to_vector();
    EXPECT_EQ(ends[0], INFINITY);
    EXPECT_TRUE(ends[1] == 0 && std::signbit(ends[1]));
    EXPECT_TRUE(std::isnan(ends[2]));
  }
}

TEST(TorchFigures, Activations) {
  const auto& c = golden_case("tanh, sigmoid, relu, silu");
  const Tensor x = input(c, "input");
  EXPECT_TRUE(agrees(c, tanh(x)));
  EXPECT_TRUE(agrees(c, sigmoid(x), "sigmoid"));
  EXPECT_TRUE(agrees(c, relu(x), "relu"));
  EXPECT_TRUE(agrees(c, silu(x), "silu"));
}

TEST(Softmax, AnyDimAnyStrides) {
  const Tensor x = randn({4, 5, 6});
  for (int dim = -3; dim < 3; ++dim) {
    const Tensor moved = x.transpose(dim, -1).contiguous();
    EXPECT_TRUE(bits_equal(softmax(x, dim), softmax(moved, -1).transpose(dim, -1))) << dim;
    EXPECT_TRUE(bits_equal(log_softmax(x, dim), log_softmax(moved, -1).transpose(dim, -1))) << dim;
    EXPECT_TRUE(bits_equal(softmax(x.permute({2, 0, 1}), dim), softmax(x.permute({2, 0, 1}).contiguous(), dim))) << dim;
  }
  EXPECT_EQ(softmax(scalar_tensor(3.0f), 0).item(), 1);
  const Tensor out = empty({6, 5, 4}).transpose(0, 2);
  softmax(x, 1, out);
  EXPECT_TRUE(bits_equal(out, softmax(x, 1)));
}

TEST(Softmax, IntoItsOwnMemoryAndIntoMemoryThatOverlaps) {
  for (const int dim : {0, 1, 2}) {
    const Tensor x = randn({5, 40, 33}), expected = softmax(x, dim);
    const Tensor same = x.clone();
    softmax(same, dim, same);
    EXPECT_TRUE(bits_equal(same, expected)) << dim;
    const Tensor memory = cat({x.reshape({-1}), zeros({7})}),
                 shifted = memory.narrow(0, 7, x.numel()).reshape({5, 40, 33});
    log_softmax(memory.narrow(0, 0, x.numel()).reshape({5, 40, 33}), dim, shifted);
    EXPECT_TRUE(bits_equal(shifted, log_softmax(x, dim))) << dim;
    const Tensor half = x.to(Dtype::bf16);
    EXPECT_TRUE(bits_equal(softmax(half, dim), softmax(half.to(Dtype::f32), dim).to(Dtype::bf16))) << dim;
  }
}

/// Results that go past the caches are those of the same rows in small calls.
TEST(Softmax, LargeResultsHaveTheBitsOfSmallOnes) {
  const Tensor x = randn({90, 50001}), weight = randn({50001}), whole = softmax(x, 1), logs = log_softmax(x, 1),
               active = gelu(x);
  const Tensor layer = layer_norm(x, {50001}, weight, weight), rms = rms_norm(x, {50001}, weight);
  ASSERT_GT(x.numel() * 4, std::int64_t{16} << 20);
  for (const int row : {0, 1, 44, 89}) {
    EXPECT_TRUE(bits_equal(whole[row], softmax(x[row], 0)));
    EXPECT_TRUE(bits_equal(logs[row], log_softmax(x[row], 0)));
    EXPECT_TRUE(bits_equal(active[row], gelu(x[row])));
    EXPECT_TRUE(bits_equal(layer[row], layer_norm(x[row], {50001}, weight, weight)));
    EXPECT_TRUE(bits_equal(rms[row], rms_norm(x[row], {50001}, weight)));
  }
  const Tensor same = x.clone();
  EXPECT_TRUE(bits_equal(softmax(same, 1, same), whole));
  const Tensor norm = x.clone();
  EXPECT_TRUE(bits_equal(layer_norm(norm, {50001}, weight, weight, 1e-5, norm), layer));
}

TEST(Softmax, LongRowsAgainstF64) {
  const Tensor x = randn({2, 9001}) * 4.0, wide = x.to(Dtype::f64);
  // 256 small weights join a partial sum that may hold 1
  EXPECT_TRUE(testing::within(softmax(x, 1).to(Dtype::f64), softmax(wide, 1), 2e-6));
  EXPECT_TRUE(testing::within(log_softmax(x, 1).to(Dtype::f64), log_softmax(wide, 1), 4e-6));
  EXPECT_NEAR(softmax(wide, 1)[0].sum().item(), 1, 1e-14);
  const auto values = wide[0].to_vector();
  double total = 0;
  for (const double v : values) total += std::exp(v - values[7]);
  EXPECT_NEAR(softmax(wide, 1)[0][7].item(), 1 / total, 1e-13 / total);
  EXPECT_NEAR(log_softmax(wide, 1)[0][7].item(), -std::log(total), 1e-12);
}

TEST(LayerNorm, HalfFloatsAndStrides) {
  const Tensor x = randn({3, 4, 64}), weight = randn({64}), bias = randn({64});
  const Tensor y = layer_norm(x, {64}, weight, bias);
  EXPECT_TRUE(bits_equal(layer_norm(x.transpose(0, 1), {64}, weight, bias), y.transpose(0, 1)));
  const Tensor half = x.to(Dtype::bf16);
  EXPECT_TRUE(bits_equal(layer_norm(half, {64}, weight, bias),
                         layer_norm(half.to(Dtype::f32), {64}, weight, bias).to(Dtype::bf16)));
}

}  // namespace
}  // namespace attn
