// tests/tensor/transcendental_test.cc: exp, log, tanh and their like on every dtype and any strides.
#include "kernels/reference.h"
#include "support/errors.h"
#include "support/golden.h"
#include "support/random_shapes.h"

#include <cmath>

namespace attn::testing {
namespace {

double gelu_tanh(double x) { return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }

struct Function {
  const char* name;
  Tensor (*operation)(const Tensor&, Tensor);
  double (*truth)(double);
};

const Function functions[] = {
    {"exp", attn::exp, [](double x) { return std::exp(x); }},
    {"log", attn::log, [](double x) { return std::log(x); }},
    {"sin", attn::sin, [](double x) { return std::sin(x); }},
    {"cos", attn::cos, [](double x) { return std::cos(x); }},
    {"tanh", attn::tanh, [](double x) { return std::tanh(x); }},
    {"sigmoid", attn::sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }},
    {"silu", attn::silu, [](double x) { return x / (1 + std::exp(-x)); }},
    {"gelu", [](const Tensor& x, Tensor out) { return gelu(x, GeluApproximate::none, out); },
     [](double x) { return x / 2 * std::erfc(-x / std::sqrt(2.0)); }},
    {"gelu tanh", [](const Tensor& x, Tensor out) { return gelu(x, GeluApproximate::tanh, out); }, gelu_tanh},
};

TEST(Transcendental, NearTheTruthOnAnyStrides) {
  Random random(1);
  for (const Function& function : functions) {
    for (int round = 0; round < 20; ++round) {
      const Dtype dtype =
          std::initializer_list<Dtype>{Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16}.begin()[round % 4];
      const double eps = dtype == Dtype::f64   ? 0x1p-52
                         : dtype == Dtype::f32 ? 0x1p-23
                         : dtype == Dtype::f16 ? 0x1p-11
                                               : 0x1p-8;
      Tensor x = random_tensor(random, random_sizes(random), dtype);
      if (std::string(function.name) == "log") x = abs(x);
      SCOPED_TRACE(std::string(function.name) + " " + to_string(x.sizes()) + " " + std::string(name_of(dtype)));
      const Tensor result = function.operation(x, {});
      ASSERT_EQ(result.dtype(), dtype);
      for_each_index(x.sizes(), [&](const Dims& index) {
        const double truth = function.truth(at(x, index)), ours = at(result, index);
        if (std::isinf(truth)) {
          ASSERT_EQ(ours, truth);
        } else {
          ASSERT_NEAR(ours, truth, 4 * eps * std::max(std::fabs(truth), 0.25));
        }
      });
    }
  }
}

TEST(Transcendental, StridesAndGivenMemoryChangeNoBit) {
  Random random(2);
  for (const Function& function : functions) {
    const Tensor x = random_tensor(random, {3, 40, 20});  // longer than the buffer of a strided run
    const Tensor expected = function.operation(x.contiguous(), {});
    const Tensor out = zeros({40, 3, 20}).transpose(0, 1);
    EXPECT_TRUE(bits_equal(function.operation(x, {}), expected)) << function.name;
    EXPECT_TRUE(bits_equal(function.operation(x, out), expected)) << function.name;
    EXPECT_TRUE(bits_equal(out, expected)) << function.name;
    const Tensor own = x.clone();
    EXPECT_TRUE(bits_equal(function.operation(own, own), expected)) << function.name;
    const Tensor column = x.flatten().unsqueeze(1).expand({2400, 2}).contiguous().select(1, 0);  // one strided run
    EXPECT_TRUE(bits_equal(function.operation(column, {}), expected.flatten())) << function.name;
  }
}

TEST(Transcendental, SixteenBitsRoundTheF32ResultOnce) {
  std::vector<float> values;
  for (int i = 0; i < 2000; ++i) values.push_back(static_cast<float>(i) / 100 - 10);
  for (const Dtype dtype : {Dtype::bf16, Dtype::f16}) {
    const Tensor x = tensor<float>(values).to(dtype);
    for (const Function& function : functions)
      EXPECT_TRUE(bits_equal(function.operation(x, {}), function.operation(x.to(Dtype::f32), {}).to(dtype)))
          << function.name;
  }
}

TEST(Transcendental, EndsOfTheLine) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = tensor<float>({inf, -inf, nan, 0.f, -0.f});
  const auto expect = [&](const Tensor& result, std::vector<float> expected) {
    EXPECT_TRUE(bits_equal(result, tensor<float>(expected)));
  };
  expect(exp(x), {inf, 0, nan, 1, 1});
  expect(log(x), {inf, nan, nan, -inf, -inf});
  expect(tanh(x), {1, -1, nan, 0, -0.f});
  expect(sigmoid(x), {1, 0, nan, 0.5, 0.5});
  expect(gelu(x), {inf, -0.f, nan, 0, -0.f});
  expect(gelu(x, GeluApproximate::tanh), {inf, -0.f, nan, 0, -0.f});
}

TEST(Transcendental, DtypesAreTorchs) {
  const auto& table = golden("torch_promotion.json").at("unary");
  const std::pair<const char*, Tensor (*)(const Tensor&)> all[] = {
      {"exp", [](const Tensor& x) { return exp(x); }},
      {"log", [](const Tensor& x) { return log(x); }},
      {"sqrt", [](const Tensor& x) { return sqrt(x); }},
      {"abs", [](const Tensor& x) { return abs(x); }},
      {"sin", [](const Tensor& x) { return sin(x); }},
      {"cos", [](const Tensor& x) { return cos(x); }},
      {"tanh", [](const Tensor& x) { return tanh(x); }},
      {"sigmoid", [](const Tensor& x) { return sigmoid(x); }},
      {"relu", [](const Tensor& x) { return relu(x); }},
      {"neg", [](const Tensor& x) { return neg(x); }},
      {"isnan", isnan},
      {"isinf", isinf},
      {"silu", [](const Tensor& x) { return silu(x); }},
      {"gelu", [](const Tensor& x) { return gelu(x); }}};
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16, Dtype::i64, Dtype::i32, Dtype::boolean}) {
    for (const auto& [name, function] : all) {
      SCOPED_TRACE(std::string(name) + " of " + std::string(name_of(dtype)));
      const std::string expected = table.at(std::string(name_of(dtype))).at(name).get<std::string>();
      if (expected == "error") EXPECT_THROW(function(ones({2}, dtype)), DtypeError);
      else EXPECT_EQ(name_of(function(ones({2}, dtype)).dtype()), expected);
    }
  }
  EXPECT_EQ(error_of<DtypeError>([] { gelu(arange(2)); }), "gelu: x is i64; it must be f32, f64, bf16 or f16");
}

TEST(Transcendental, Histories) {
  Tensor x = ones({2});
  x.requires_grad_();
  EXPECT_NE(x.exp().to_string().find("grad_fn=<ExpBackward0>"), std::string::npos);
  EXPECT_NE(x.tanh().to_string().find("grad_fn=<TanhBackward0>"), std::string::npos);
  EXPECT_NE(gelu(x).to_string().find("grad_fn=<GeluBackward0>"), std::string::npos);
}

}  // namespace
}  // namespace attn::testing
