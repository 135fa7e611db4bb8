// tests/model/lively.h: makes models of random weights that say many different things.
#pragma once
#include <attn/model.h>
#include <attn/ops.h>

namespace attn::testing {

inline LanguageModel lively(ModelConfig config, Dtype dtype = Dtype::f32, std::uint64_t seed = 5) {
  Generator generator(seed);
  config.tied_head = false;  // a tied one repeats itself
  LanguageModel model(config, dtype, &generator);
  for (const Tensor& weight : model.parameters()) weight.detach().add_(randn(weight.sizes(), generator).to(dtype), 0.7);
  return model;
}

}  // namespace attn::testing
