// tests/model/small_pairs.h: a training on pairs of milliseconds a step.
#pragma once
#include "support/golden.h"

#include <attn/train.h>

#include <gtest/gtest.h>

#include <iterator>
#include <string>
#include <vector>

namespace attn::testing {

/// Words and the same words backwards.
inline std::vector<TextPair> texts_of_pairs() {
  const std::vector<std::string> words = {"one", "two", "six", "ten", "cat", "dog"};
  std::vector<TextPair> pairs;
  for (std::size_t i = 0; i < 60; ++i) {
    const std::string &a = words[i % 6], &b = words[i * 7 / 6 % 6], &c = words[i / 5 % 6];
    pairs.push_back(i % 3 == 0   ? TextPair{a, a}
                    : i % 3 == 1 ? TextPair{a + " " + b, b + " " + a}
                                 : TextPair{a + " " + b + " " + c, c + " " + b + " " + a});
  }
  return pairs;
}

inline Tokenizer tokenizer_of_pairs() { return train_pair_tokenizer(texts_of_pairs(), Tokenizer::Kind::words); }
inline std::vector<IdPair> id_pairs() { return encode_pairs(tokenizer_of_pairs(), texts_of_pairs()); }

inline TrainOptions pair_options() {
  const std::int64_t size = tokenizer_of_pairs().size();
  TrainOptions o;
  o.encoder_decoder = EncoderDecoderConfig{.family = EncoderDecoderConfig::Family::marian,
                                           .vocab_size = size,
                                           .decoder_vocab_size = size,
                                           .positions = 8,
                                           .encoder_layers = 1,
                                           .decoder_layers = 1,
                                           .encoder_heads = 2,
                                           .decoder_heads = 2,
                                           .width = 16,
                                           .encoder_mlp_width = 32,
                                           .decoder_mlp_width = 32,
                                           .scaled_embedding = true,
                                           .padding_id = size - 1,
                                           .dropout = 0.1};
  o.steps = 12, o.batch = 8, o.warmup = 3, o.eval_every = 5, o.lr = 1e-2;
  return o;
}

inline ::testing::AssertionResult same_pair_weights(const Trainer& a, const Trainer& b) {
  const auto x = a.encoder_decoder().state_dict(), y = b.encoder_decoder().state_dict();
  for (std::size_t i = 0; i < x.size(); ++i)
    if (const auto same = bits_equal(x[i].second, y[i].second); !same)
      return ::testing::AssertionFailure() << x[i].first << ": " << same.message();
  return bits_equal(a.losses(), b.losses());
}

inline Trainer trained_on_pairs(std::int64_t steps, const TrainOptions& o) {
  Trainer trainer = Trainer::of_pairs(id_pairs(), o);
  while (trainer.step() < steps) trainer.advance();
  return trainer;
}

}  // namespace attn::testing
