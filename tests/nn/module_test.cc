// tests/nn/module_test.cc: names and their order, handles, training, saving and loading, what loading refuses.
#include <attn/nn.h>
#include <attn/ops.h>

#include "support/errors.h"
#include "support/golden.h"

#include <gtest/gtest.h>

#include <limits>

namespace attn::nn {
namespace {

struct Inner : Module {
  const Tensor gain = register_parameter("gain", ones({2}));
  const Tensor steps = register_buffer("steps", zeros({1}, Dtype::i64));
  const Dropout dropout = register_module("dropout", Dropout(0.5));
};

struct Outer : Module {
  const Linear up = register_module("up", Linear(2, 3));
  const Inner inner = register_module("inner", Inner());
  const Tensor scale = register_parameter("scale", full({1}, 2));
  const Tensor none = register_parameter("none", Tensor());
};

std::vector<std::string> names(const StateDict& dict) {
  std::vector<std::string> result;
  for (const auto& [name, value] : dict) result.push_back(name);
  return result;
}

std::string refusal(const Module& module, const StateDict& dict, bool strict = true) {
  try {
    module.load_state_dict(dict, strict);
  } catch (const ValueError& error) { return error.what(); }
  return "";
}

TEST(Module, OwnParametersComeFirstThenSubmodulesInOrder) {
  const Outer module;
  EXPECT_EQ(names(module.named_parameters()),
            (std::vector<std::string>{"scale", "up.weight", "up.bias", "inner.gain"}));
  EXPECT_EQ(names(module.named_buffers()), (std::vector<std::string>{"inner.steps"}));
  EXPECT_EQ(names(module.state_dict()),
            (std::vector<std::string>{"scale", "up.weight", "up.bias", "inner.gain", "inner.steps"}));
  EXPECT_EQ(module.parameters().size(), 4u);
  for (const Tensor& parameter : module.parameters()) EXPECT_TRUE(parameter.requires_grad());
  for (const auto& [name, value] : module.state_dict()) EXPECT_FALSE(value.requires_grad()) << name;
  EXPECT_FALSE(module.none.defined());
}

TEST(Module, ACopyIsTheSameModule) {
  const Outer module;
  const Outer copy = module;
  copy.scale.detach().fill_(7);
  EXPECT_EQ(module.scale.item(), 7);
  copy.eval();
  EXPECT_FALSE(module.is_training());
}

TEST(Module, TrainingReachesEverySubmodule) {
  const Outer module;
  EXPECT_TRUE(module.inner.dropout.is_training());
  module.eval();
  EXPECT_FALSE(module.inner.dropout.is_training());
  module.inner.train();
  EXPECT_TRUE(module.inner.dropout.is_training());
  EXPECT_FALSE(module.is_training());
}

TEST(Module, StateRoundTrip) {
  manual_seed(1);
  const Outer from;
  from.inner.steps.fill_(41);
  manual_seed(2);
  const Outer to;
  to.load_state_dict(from.state_dict());
  const StateDict a = from.state_dict(), b = to.state_dict();
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(testing::bits_equal(a[i].second, b[i].second)) << a[i].first;
    EXPECT_NE(a[i].second.data(), b[i].second.data());
  }
  for (const Tensor& parameter : to.parameters()) EXPECT_TRUE(parameter.requires_grad());
}

TEST(Module, LoadingConvertsTheDtype) {
  const Linear module(2, 1, {.bias = false});
  module.load_state_dict({{"weight", tensor<double>({0.1, 2}, {1, 2})}});
  EXPECT_TRUE(testing::bits_equal(module.weight.detach(), tensor<float>({0.1f, 2}, {1, 2})));
}

TEST(Module, OneLineNamesAllThatDoesNotFit) {
  const Outer module;
  const Tensor before = module.scale.detach().clone();
  StateDict dict = {{"scale", zeros({1})}, {"up.weight", zeros({3, 3})},  {"up.extra", zeros({1})},
                    {"head", zeros({1})},  {"inner.gain", zeros({2, 1})}, {"scale", zeros({1})}};
  EXPECT_EQ(refusal(module, dict),
            "load_state_dict: the state does not fit; missing: up.bias, inner.steps; unexpected: up.extra, head; "
            "repeated: scale; "
            "wrong shape: up.weight is [3, 3], not [3, 2], inner.gain is [2, 1], not [2]");
  EXPECT_TRUE(testing::bits_equal(module.scale.detach(), before));
  dict.pop_back();
  EXPECT_EQ(refusal(module, dict, false),
            "load_state_dict: the state does not fit; wrong shape: up.weight is [3, 3], not [3, 2], inner.gain is [2, "
            "1], not [2]");
  EXPECT_TRUE(testing::bits_equal(module.scale.detach(), before));
  EXPECT_EQ(refusal(module, {{"scale", full({1}, 5)}, {"head", zeros({1})}}, false), "");
  EXPECT_EQ(module.scale.item(), 5);
  EXPECT_EQ(refusal(module, {{"scale", Tensor()}}, false),
            "load_state_dict: the state does not fit; wrong shape: scale is undefined, not [1]");
}

TEST(Module, NamesAreUniqueAndHaveNoDot) {
  struct Twice : Module {
    Twice() { register_parameter("a", ones({1})), register_module("a", ReLU()); }
  };
  struct Dotted : Module {
    Dotted() { register_buffer("a.b", ones({1})); }
  };
  EXPECT_THROW(Twice(), ValueError);
  EXPECT_THROW(Dotted(), ValueError);
  Sequential loop;
  EXPECT_THROW(loop.push_back(loop), ValueError);
}

TEST(Containers, SequentialCallsInOrder) {
  manual_seed(3);
  Sequential mlp(Linear(4, 8), GELU());
  mlp.push_back(Linear(8, 2, {.bias = false}));
  EXPECT_EQ(names(mlp.state_dict()), (std::vector<std::string>{"0.weight", "0.bias", "2.weight"}));
  EXPECT_EQ(mlp.size(), 3);
  manual_seed(3);
  const Linear first(4, 8), last(8, 2, {.bias = false});
  const Tensor x = randn({5, 4});
  EXPECT_TRUE(testing::bits_equal(mlp(x).detach(), last(gelu(first(x))).detach()));
  const Sequential nested(mlp, Tanh());
  EXPECT_EQ(names(nested.state_dict()), (std::vector<std::string>{"0.0.weight", "0.0.bias", "0.2.weight"}));
  EXPECT_TRUE(testing::bits_equal(nested(x).detach(), tanh(mlp(x)).detach()));
}

TEST(Containers, AModuleListIsIndexedAndShared) {
  ModuleList<Linear> list;
  list.push_back(Linear(1, 2));
  const ModuleList<Linear> copy = list;
  list.push_back(Linear(2, 3));
  EXPECT_EQ(copy.size(), 2);
  EXPECT_EQ(copy[1].out_features, 3);
  EXPECT_EQ(names(copy.state_dict()), (std::vector<std::string>{"0.weight", "0.bias", "1.weight", "1.bias"}));
  EXPECT_THROW(copy[2], ValueError);
}

TEST(Dropout, OnlyInTraining) {
  const Dropout dropout(0.5);
  const Tensor x = ones({1000});
  manual_seed(4);
  const double kept = dropout(x).sum().item() / 2;
  EXPECT_GT(kept, 400);
  EXPECT_LT(kept, 600);
  dropout.eval();
  EXPECT_TRUE(testing::bits_equal(dropout(x), x));
  EXPECT_THROW(Dropout(1.5), ValueError);
}

TEST(Dropout, SaysTheProbabilityItWasGiven) {
  EXPECT_EQ(testing::error_of<ValueError>([] { Dropout(-1e-9); }), "Dropout: p is -1e-09; it must be from 0 to 1");
  EXPECT_EQ(testing::error_of<ValueError>([] { dropout(ones({2}), 1.5); }),
            "dropout: p is 1.5; it must be from 0 to 1");
}

TEST(Init, GainsAndErrors) {
  EXPECT_EQ(init::calculate_gain(init::Nonlinearity::tanh), 5.0 / 3.0);
  EXPECT_EQ(init::calculate_gain(init::Nonlinearity::relu), std::sqrt(2.0));
  EXPECT_EQ(init::calculate_gain(init::Nonlinearity::selu), 0.75);
  EXPECT_EQ(init::calculate_gain(init::Nonlinearity::sigmoid), 1.0);
  EXPECT_EQ(init::calculate_gain(init::Nonlinearity::leaky_relu, 1.0), 1.0);
  try {
    init::xavier_uniform_(empty({3}));
    FAIL();
  } catch (const ShapeError& error) {
    EXPECT_STREQ(error.what(), "xavier_uniform_: the tensor has shape [3]; fans need rank 2 or more");
  }
}

TEST(Init, DeviationsThatAreNoNumbers) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor x = ones({2, 3});
  EXPECT_THROW(init::xavier_uniform_(x, nan), ValueError);
  EXPECT_THROW(init::xavier_normal_(x, -1), ValueError);
  EXPECT_THROW(init::kaiming_uniform_(x, {.a = nan}), ValueError);
  EXPECT_THROW(init::kaiming_normal_(x, {.a = nan}), ValueError);
  EXPECT_THROW(init::normal_(x, 0, nan), ValueError);
  EXPECT_THROW(init::normal_(x, nan, 1), ValueError);
  EXPECT_THROW(init::uniform_(x, nan, 1), ValueError);
  EXPECT_THROW(init::uniform_(x, 1, 0), ValueError);
  EXPECT_EQ(x.to_vector(), ones({2, 3}).to_vector());
  EXPECT_NO_THROW(init::kaiming_uniform_(empty({3, 0})));
}

TEST(Init, AGeneratorOfOnesOwnAndParametersThatRequireAGradient) {
  Generator a(5), b(5);
  Tensor parameter = empty({4, 5}).requires_grad_();
  init::normal_(parameter, 0, 2, &a);
  EXPECT_TRUE(testing::bits_equal(parameter.detach(), normal_(empty({4, 5}), 0, 2, b)));
  EXPECT_EQ(init::zeros_(parameter).sum().item(), 0);
  EXPECT_EQ(init::ones_(parameter).sum().item(), 20);
}

}  // namespace
}  // namespace attn::nn
