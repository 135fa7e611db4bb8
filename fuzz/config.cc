// fuzz/config.cc: parses texts of config.json: they must be written and read back the same; a small model is saved,
// loaded, and must compute the same.
#include "folder.h"
#include "fuzz.h"

#include <algorithm>

using namespace attn;
using namespace attn::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Folder folder;
  ModelConfig config;
  const std::string json = Choices(data, size).rest();
  if (!answers([&] { config = ModelConfig::from_json(json); })) return 0;
  ModelConfig again;
  check(answers([&] { again = ModelConfig::from_json(config.to_json()); }),
        "what it writes is not read: " + config.to_json());
  check(again.to_json() == config.to_json(), "written twice it is not the same: " + config.to_json() + again.to_json());
  check(again.parameters() == config.parameters() && config.parameters() > 0,
        "another number of weights: " + config.to_json());
  for (std::int64_t n = 0; n < std::min<std::int64_t>(config.layers, 100); ++n)
    check(again.mask(n).to_string() == config.mask(n).to_string(), "another mask: " + config.to_json());
  if (config.parameters() > 30000 || config.context > 64 || config.layers > 4) return 0;
  answers([&] {
    const LanguageModel model(config);
    model.eval();
    model.save(folder.path());
    const LanguageModel loaded = LanguageModel::load(folder.path());
    const Tensor ids = zeros({1, std::min<std::int64_t>(config.context, 3)}, Dtype::i64);
    check(same_bits(model(ids), loaded(ids)), "loaded it computes other logits: " + config.to_json());
  });
  return 0;
}
