// tests/model/small_training.h: a training of milliseconds a step, on a text that can be learnt.
#pragma once
#include "support/golden.h"

#include <attn/train.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace attn::testing {

/// Fourteen characters in an order that a model can learn.
inline std::vector<std::int64_t> training_ids() {
  return Tokenizer::train("how much wood would a woodchuck chuck. ", Tokenizer::Kind::characters).encode([] {
    std::string text;
    for (int i = 0; i < 40; ++i)
      text += i % 3 ? "how much wood would a woodchuck chuck. " : "a woodchuck would chuck wood. ";
    return text;
  }());
}

inline TrainOptions training_options() {
  TrainOptions o;
  const std::vector<std::int64_t> all = training_ids();
  o.model = ModelConfig::nano(1 + *std::max_element(all.begin(), all.end()));
  o.model.layers = 2, o.model.heads = 2, o.model.width = 16, o.model.context = 12, o.model.dropout = 0.1;
  o.steps = 12, o.batch = 4, o.warmup = 3, o.eval_every = 5, o.lr = 1e-2;
  return o;
}

inline TrainOptions training_in_parts(std::int64_t batch, std::int64_t parts, Dtype dtype) {
  TrainOptions o = training_options();
  o.batch = batch, o.parts = parts, o.dtype = dtype;
  return o;
}

inline ::testing::AssertionResult same_weights(const Trainer& a, const Trainer& b) {
  const auto x = a.model().state_dict(), y = b.model().state_dict();
  if (x.size() != y.size()) return ::testing::AssertionFailure() << "other names";
  for (std::size_t i = 0; i < x.size(); ++i)
    if (const auto same = bits_equal(x[i].second, y[i].second); !same)
      return ::testing::AssertionFailure() << x[i].first << ": " << same.message();
  return ::testing::AssertionSuccess();
}

inline Trainer trained(std::int64_t steps, const TrainOptions& o = training_options()) {
  Trainer trainer(training_ids(), o);
  while (trainer.step() < steps) trainer.advance();
  return trainer;
}

}  // namespace attn::testing
