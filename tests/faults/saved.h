// tests/faults/saved.h: what is saved while something fails: each kind of file in two versions, and which one a folder
// holds.
#pragma once
#include "model/tiny_models.h"

#include <attn/npy.h>
#include <attn/ops.h>
#include <attn/safetensors.h>
#include <attn/train.h>

#include <string>
#include <vector>

namespace attn::testing {

inline std::vector<std::int64_t> ids_of_text() {
  std::vector<std::int64_t> ids;
  for (int i = 0; i < 200; ++i) ids.push_back(i * i % 13);
  return ids;
}

inline const std::vector<std::string> kSaved = {"safetensors", "npy", "tokenizer", "model", "training"};

/// All of version 1 or 2.
inline void save_version(const std::string& what, const std::string& folder, int version) {
  const Tensor x = full({3000}, version);
  if (what == "safetensors") save_safetensors(folder + "/x", {{"x", x}, {"y", x}});
  if (what == "npy") save_npy(folder + "/x", x);
  if (what == "tokenizer") Tokenizer::train(version == 1 ? "abc" : "bcd", Tokenizer::Kind::characters).save(folder);
  if (what == "model") {
    Generator generator(static_cast<std::uint64_t>(version));
    LanguageModel(tiny_gpt2(), Dtype::f32, &generator).save(folder);
  }
  if (what == "training") {
    Trainer trainer(ids_of_text(), {.model = tiny_gpt2(), .steps = 4, .batch = 1});
    while (trainer.step() < version) trainer.advance();
    trainer.save(folder);
  }
}

/// The version that a folder holds, read as a user does; throws for anything else.
inline int version_in(const std::string& what, const std::string& folder) {
  const auto of_numbers = [](const Tensor& x) {
    const auto values = x.to_vector();
    for (const double value : values)
      if (value != values[0]) throw ValueError("half of one, half of another");
    return static_cast<int>(values.at(0));
  };
  if (what == "safetensors") {
    const Safetensors file = load_safetensors(folder + "/x");
    const int version = of_numbers(file.at("x"));
    return version == of_numbers(file.at("y")) ? version : throw ValueError("two versions");
  }
  if (what == "npy") return of_numbers(load_npy(folder + "/x"));
  if (what == "tokenizer") return Tokenizer::load(folder).find("a") ? 1 : 2;
  if (what == "model") {
    const LanguageModel model = LanguageModel::load(folder);
    for (const int version : {1, 2}) {
      Generator generator(static_cast<std::uint64_t>(version));
      const LanguageModel wanted(tiny_gpt2(), Dtype::f32, &generator);
      if (same_bits(wanted.state_dict().front().second, model.state_dict().front().second)) return version;
    }
    throw ValueError("neither model");
  }
  return static_cast<int>(Trainer::resume(folder, ids_of_text()).step());
}

}  // namespace attn::testing
