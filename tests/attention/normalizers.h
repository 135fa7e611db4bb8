// tests/attention/normalizers.h: every normalizer, and a function of the weight, for tests.
#pragma once
#include "attention/every_option.h"

#include <string>
#include <vector>

namespace attn::testing {

inline std::vector<Normalizer> every_normalizer() {
  return {Normalizer::sigmoid(),  Normalizer::sigmoid(-1.5),  Normalizer::sparsemax(), Normalizer::entmax15(),
          Normalizer::softmax1(), Normalizer::relu_squared(), Normalizer::softmax(),   Normalizer::relu_squared(0.25)};
}

/// The options that combine with a normalizer.
inline std::vector<Option> options_of(const Normalizer& normalizer) {
  std::vector<Option> all = every_option();
  std::erase_if(all, [&](const Option& option) {
    const std::string name = option.name;
    return name == "score callable" || (name == "sinks" && normalizer.kind != Normalizer::Kind::softmax);
  });
  return all;
}

/// A function of the weight that looks up a tensor: by the head, and by the key.
struct WeightFunction {
  ScoreTable of_head, of_key;
  explicit WeightFunction(const OptionSizes& z)
      : of_head(exact({z.heads}, z.computed(), 31), "of_head"), of_key(exact({z.rows}, z.computed(), 32), "of_key") {}
  WeightFunction(const Tensor& head, const Tensor& key) : of_head(head, "of_head"), of_key(key, "of_key") {}
  ScoreExpression expression() const {
    return [this](auto w, auto, auto h, auto i, auto j) {
      return w * (1.0 + 0.25 * of_head(h)) + w * w * of_key(max(min(j, i), 0)) * 0.5;
    };
  }
};

inline AttentionOptions with(AttentionOptions options, const Normalizer& normalizer,
                             const OptionSizes* modified = nullptr) {
  options.normalizer = normalizer;
  if (modified != nullptr) options.weight_mod = WeightFunction(*modified).expression();
  return options;
}

}  // namespace attn::testing
