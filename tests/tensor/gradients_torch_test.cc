// tests/tensor/gradients_torch_test.cc: gradients of operations beside torch's, for every such case of
// torch_semantics.json.
#include <attn/autograd.h>
#include <attn/nn.h>
#include <attn/ops.h>

#include "support/errors.h"
#include "support/golden.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace attn {
namespace {

using Json = nlohmann::json;
using testing::golden_tensor;
using Inputs = std::map<std::string, Tensor>;
using Outputs = std::map<std::string, Tensor>;

Tensor of(const Inputs& inputs, const char* name) { return inputs.count(name) ? inputs.at(name) : Tensor(); }

CrossEntropyOptions loss_options(const Json& options, const Inputs& inputs) {
  const std::string reduction = options.value("reduction", "mean");
  return {.weight = of(inputs, "weight"),
          .ignore_index = options.value("ignore_index", std::int64_t{-100}),
          .label_smoothing = options.value("label_smoothing", 0.0),
          .reduction = reduction == "sum"    ? Reduction::sum
                       : reduction == "none" ? Reduction::none
                                             : Reduction::mean};
}

/// The outputs of a case by name, computed by our operations.
Outputs run(const Json& c, Inputs& in) {
  const std::string op = c.at("op");
  const Json options = c.value("options", Json::object());
  if (op == "layer_norm")
    return {{"output", layer_norm(in.at("input"), Dims(options.at("normalized_shape").get<std::vector<std::int64_t>>()),
                                  of(in, "weight"), of(in, "bias"), options.at("eps"))}};
  if (op == "linear") return {{"output", linear(in.at("input"), in.at("weight"), of(in, "bias"))}};
  if (op == "gelu")
    return {{"output", gelu(in.at("input"),
                            options.at("approximate") == "tanh" ? GeluApproximate::tanh : GeluApproximate::none)}};
  if (op == "activations")
    return {{"output", tanh(in.at("input"))},
            {"sigmoid", sigmoid(in.at("input"))},
            {"relu", relu(in.at("input"))},
            {"silu", silu(in.at("input"))}};
  if (op == "cross_entropy")
    return {{"output", cross_entropy(in.at("logits"), in.at("target"), loss_options(options, in))}};
  if (op == "softmax") return {{"output", softmax(in.at("input"), options.at("dim"))}};
  if (op == "log_softmax") return {{"output", log_softmax(in.at("input"), options.at("dim"))}};
  if (op == "embedding") {
    const nn::Embedding table(in.at("weight").size(0), in.at("weight").size(1),
                              {.padding_idx = options.at("padding_idx").get<std::int64_t>()});
    table.load_state_dict({{"weight", in.at("weight")}});
    in["weight"] = table.weight;
    return {{"output", table(in.at("indices"))}};
  }
  return {};
}

TEST(GradientsOfTorch, EveryCaseOfTheOperations) {
  int compared = 0;
  for (const Json& c : testing::golden("torch_semantics.json").at("cases")) {
    if (!c.contains("expect_grads")) continue;
    Inputs inputs;
    for (const auto& [name, value] : c.at("inputs").items()) inputs[name] = golden_tensor(value);
    for (const auto& entry : c.at("expect_grads").items()) inputs.at(entry.key()).requires_grad_();
    const Outputs outputs = run(c, inputs);
    if (outputs.empty()) continue;
    SCOPED_TRACE(c.at("name").get<std::string>());
    std::vector<Tensor> results, grads;
    for (const auto& [name, value] : c.at("grad_of").items()) {
      results.push_back(outputs.at(name));
      grads.push_back(golden_tensor(value));
    }
    const Json& error = c.at("torch_error_vs_float64");
    for (const auto& [name, value] : c.at("expect").items()) {
      if (c.at("op") == "gelu") continue;  // torch's values at the infinities are not ours: docs/torch.md
      EXPECT_TRUE(testing::within_error_rule(outputs.at(name).detach(), golden_tensor(value), error.at(name))) << name;
    }
    backward(results, grads);
    for (const auto& [name, value] : c.at("expect_grads").items()) {
      EXPECT_TRUE(testing::within_error_rule(inputs.at(name).grad(), golden_tensor(value), error.at("grad " + name)))
          << "gradient of " << name;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 29);
}

TEST(CrossEntropy,
     IgnoresClassesNotProbabilities) {  // as torch: "ignore_index is not supported for floating point target"
  const Tensor x = ones({2, 3});
  EXPECT_EQ(testing::error_of<ValueError>([&] { cross_entropy(x, x, {.ignore_index = 0}); }),
            "cross_entropy: ignore_index is 0, and target holds probabilities; it ignores classes alone");
  EXPECT_EQ(cross_entropy(x, x, {.ignore_index = -1}).dim(), 0);
}

TEST(CrossEntropy, TheMeanOfNoWeightIsNaN) {  // as torch, with smoothing too, which leaves each row a loss
  const Tensor x = tensor<double>({1, 2, 3}, {1, 3}).requires_grad_();
  for (const double smoothing : {0.0, 0.1, 1.0}) {
    const Tensor loss = cross_entropy(x, tensor<std::int64_t>({2}),
                                      {.weight = tensor<double>({1, 2, 0}), .label_smoothing = smoothing});
    EXPECT_TRUE(std::isnan(loss.item())) << smoothing;
    EXPECT_TRUE(all(isnan(grad(loss, x)))) << smoothing;
  }
}

}  // namespace
}  // namespace attn
