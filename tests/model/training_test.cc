// tests/model/training_test.cc: a model learns as its PyTorch twin does: the same first weights, the same losses step
// by step.
#include <attn/model.h>
#include <attn/ops.h>
#include <attn/optim.h>

#include "support/golden.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace attn {
namespace {

TEST(Training, FirstWeightsAreThoseOfTheTwin) {
  const auto& golden = testing::golden("model/nano_steps.json");
  Generator generator(golden.at("seed").get<std::uint64_t>());
  const LanguageModel model(ModelConfig::nano(golden.at("vocab_size").get<std::int64_t>()), Dtype::f32, &generator);
  const std::map<std::string, std::string> twin = {{"embedding", "wte"},
                                                   {"positions", "wpe"},
                                                   {"norm", "ln_f"},
                                                   {"attention_norm", "ln_1"},
                                                   {"mlp_norm", "ln_2"},
                                                   {"attention.qkv", "attn.c_attn"},
                                                   {"attention.out", "attn.c_proj"},
                                                   {"mlp.up", "mlp.c_fc"},
                                                   {"mlp.down", "mlp.c_proj"}};
  const auto& sums = golden.at("sum_of_magnitudes");
  std::size_t compared = 0;
  for (const auto& [name, weight] : model.named_parameters()) {
    const std::size_t kind = name.rfind('.');
    std::string layer, module = name.substr(0, kind);
    if (module.starts_with("blocks.")) {
      const std::size_t dot = module.find('.', 7);
      layer = "h." + module.substr(7, dot - 7) + ".";
      module = module.substr(dot + 1);
    }
    const double expected = sums.at(layer + twin.at(module) + name.substr(kind)).get<double>();
    const double ours = abs(weight.detach().to(Dtype::f64)).sum().item();
    // both are f64 sums of the same numbers
    EXPECT_NEAR(ours, expected, 1e-12 * static_cast<double>(weight.numel())) << name;
    ++compared;
  }
  EXPECT_EQ(compared, sums.size());
}

TEST(Training, TwentyStepsHaveTheLossesOfTheTwin) {
  const auto& golden = testing::golden("model/nano_steps.json");
  const auto vocab = golden.at("vocab_size").get<std::int64_t>(), batch = golden.at("batch").get<std::int64_t>();
  Generator generator(golden.at("seed").get<std::uint64_t>());
  const LanguageModel model(ModelConfig::nano(vocab), Dtype::f32, &generator);
  optim::AdamW optimizer(model.parameters(), {.lr = 1e-3, .betas = {0.9, 0.99}, .weight_decay = 0.1});
  for (const auto& expected : golden.at("losses")) {
    const Tensor first = randint(0, vocab, {batch, 1}, generator), stride = randint(1, 4, {batch, 1}, generator);
    const Tensor count = first + stride * arange(65), rows = count - div(count, vocab).to(Dtype::i64) * vocab;
    const Tensor loss = model.loss(rows.slice(1, 0, -1), rows.slice(1, 1));
    optimizer.zero_grad();
    loss.backward();
    optim::clip_grad_norm_(model.parameters(), 1.0);
    optimizer.step();
    EXPECT_NEAR(loss.item(), expected.get<double>(), 1e-5 * expected.get<double>());
  }
}

}  // namespace
}  // namespace attn
