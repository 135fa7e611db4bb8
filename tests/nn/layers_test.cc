// tests/nn/layers_test.cc: Linear, Embedding and LayerNorm against the recorded figures of PyTorch 2.13.
#include <attn/nn.h>
#include <attn/ops.h>

#include "support/golden.h"

#include <gtest/gtest.h>

namespace attn::nn {
namespace {

using Json = nlohmann::json;
using testing::golden_tensor;

/// Calls check(case) for each recorded case of `op`; fails when there are fewer than `least`.
template <typename F>
void for_cases(const std::string& op, int least, F&& check) {
  int found = 0;
  for (const Json& recorded : testing::golden("torch_semantics.json").at("cases")) {
    if (recorded.at("op") != op) continue;
    SCOPED_TRACE(recorded.at("name").get<std::string>());
    ++found;
    check(recorded);
  }
  EXPECT_GE(found, least);
}

void expect_output(const Tensor& ours, const Json& recorded) {
  EXPECT_TRUE(testing::within_error_rule(ours.detach(), golden_tensor(recorded.at("expect").at("output")),
                                         recorded.at("torch_error_vs_float64").at("output").get<double>()));
}

StateDict parameters_of(const Json& inputs) {
  StateDict dict;
  for (const char* name : {"weight", "bias"})
    if (inputs.contains(name)) dict.emplace_back(name, golden_tensor(inputs.at(name)));
  return dict;
}

TEST(Layers, Linear) {
  for_cases("linear", 2, [](const Json& recorded) {
    const Json& inputs = recorded.at("inputs");
    const Tensor x = golden_tensor(inputs.at("input")), weight = golden_tensor(inputs.at("weight"));
    const Linear module(weight.size(1), weight.size(0), {.bias = inputs.contains("bias")});
    module.load_state_dict(parameters_of(inputs));
    expect_output(module(x), recorded);
    EXPECT_TRUE(module(x).requires_grad());
  });
}

TEST(Layers, LayerNorm) {
  for_cases("layer_norm", 3, [](const Json& recorded) {
    const Json& inputs = recorded.at("inputs");
    const Json& options = recorded.at("options");
    const LayerNorm module(Dims(options.at("normalized_shape").get<std::vector<std::int64_t>>()),
                           {.eps = options.at("eps").get<double>(), .elementwise_affine = inputs.contains("weight")});
    module.load_state_dict(parameters_of(inputs));
    expect_output(module(golden_tensor(inputs.at("input"))), recorded);
  });
}

TEST(Layers, ShapesOfNormsInBraces) {
  EXPECT_EQ(LayerNorm(4).weight.sizes(), (Dims{4}));
  EXPECT_EQ(LayerNorm({3, 4}, {.bias = false}).weight.sizes(), (Dims{3, 4}));
  EXPECT_EQ(RMSNorm({3, 4}).weight.sizes(), (Dims{3, 4}));
  EXPECT_EQ((RMSNorm{64, {1e-5}}).weight.sizes(), (Dims{64}));
}

TEST(Layers, RmsNorm) {
  int cases = 0;
  for (const Json& recorded : testing::golden("norms/rms_norm.json").at("cases")) {
    const Json &inputs = recorded.at("inputs"), &options = recorded.at("options");
    const Tensor x = golden_tensor(inputs.at("input"));
    RMSNormOptions own{.elementwise_affine = inputs.contains("weight"), .dtype = x.dtype()};
    if (options.contains("eps")) own.eps = options.at("eps").get<double>();
    const RMSNorm module(Dims(options.at("normalized_shape").get<std::vector<std::int64_t>>()), own);
    module.load_state_dict(parameters_of(inputs));
    EXPECT_EQ(module.parameters().size(), inputs.contains("weight") ? 1u : 0u);
    EXPECT_TRUE(testing::within_error_rule(module(x).detach(), golden_tensor(recorded.at("expect").at("output")),
                                           recorded.at("torch_error_vs_float64").get<double>()));
    ++cases;
  }
  EXPECT_GE(cases, 8);
}

TEST(Layers, WithoutDrawsNothingIsDrawn) {
  manual_seed(3);
  const Tensor expected = rand({2});
  manual_seed(3);
  const Linear linear(4, 3, {.draw = false});
  const Embedding table(4, 3, {.draw = false});
  EXPECT_TRUE(same_bits(rand({2}), expected));
  for (const Tensor& x : {linear.weight, linear.bias, table.weight})
    EXPECT_TRUE(same_bits(x.detach(), zeros(x.sizes())));
}

TEST(Layers, Embedding) {
  for_cases("embedding", 1, [](const Json& recorded) {
    const Json& inputs = recorded.at("inputs");
    const Tensor weight = golden_tensor(inputs.at("weight"));
    const Embedding module(weight.size(0), weight.size(1),
                           {.padding_idx = recorded.at("options").at("padding_idx").get<std::int64_t>()});
    EXPECT_TRUE(testing::bits_equal(module.weight.detach()[0], zeros({weight.size(1)})));
    module.load_state_dict(parameters_of(inputs));
    expect_output(module(golden_tensor(inputs.at("indices"))), recorded);
  });
}

TEST(Layers, LayerNormWithoutBias) {
  const LayerNorm module(3, {.bias = false});
  EXPECT_FALSE(module.bias.defined());
  EXPECT_EQ(module.state_dict().size(), 1u);
}

TEST(Layers, PaddingRowsCountFromTheEndToo) {
  const Embedding module(5, 2, {.padding_idx = -2});
  EXPECT_EQ(module.padding_idx, 3);
  EXPECT_EQ(module(tensor<std::int64_t>({3})).to_vector(), (std::vector<double>{0, 0}));
  try {
    Embedding(5, 2, {.padding_idx = 5});
    FAIL();
  } catch (const ValueError& error) {
    EXPECT_STREQ(error.what(), "Embedding: padding_idx is 5; it must be from -5 to 4");
  }
}

TEST(Layers, Dtypes) {
  for (const Dtype dtype : {Dtype::f64, Dtype::bf16, Dtype::f16}) {
    const Linear module(3, 4, {.dtype = dtype});
    EXPECT_EQ(module.weight.dtype(), dtype);
    EXPECT_EQ(module(ones({2, 3}, dtype)).dtype(), dtype);
  }
}

TEST(Layers, WrongWidthIsAnError) {
  EXPECT_THROW(Linear(3, 4)(ones({2, 5})), ShapeError);
  EXPECT_THROW(LayerNorm(3)(ones({2, 5})), ShapeError);
  EXPECT_THROW(Embedding(3, 4)(tensor<std::int64_t>({3})), ValueError);
}

}  // namespace
}  // namespace attn::nn
