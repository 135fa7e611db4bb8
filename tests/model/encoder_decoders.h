// tests/model/encoder_decoders.h: tiny encoder-decoders of transformers with their figures, the golden ones or those
// that ATTN_ENCODER_DECODERS names.
#pragma once
#include <attn/encoder_decoder.h>

#include "model/encoders.h"

namespace attn::testing {

using Texts = std::vector<std::vector<std::int64_t>>;

struct GivenPair {
  std::string folder;
  nlohmann::json record;
  Texts sources, targets;
};

/// Calls visit for each encoder-decoder.
template <typename F>
void each_encoder_decoder(F&& visit) {
  std::vector<std::string> folders;
  if (const char* given = std::getenv("ATTN_ENCODER_DECODERS")) {
    std::istringstream list(given);
    for (std::string folder; std::getline(list, folder, ':');) folders.push_back(folder);
  } else {
    for (const char* name : {"t5", "t5_1_1", "bart", "mbart", "marian", "marian_two", "m2m_100", "pegasus"})
      folders.push_back(golden_path(std::string("model/encoder_decoders/") + name));
  }
  for (const std::string& folder : folders) {
    SCOPED_TRACE(folder);
    GivenPair given{folder, nlohmann::json::parse(content_of(folder + "/translated.json")), {}, {}};
    given.sources = given.record.at("sources").get<Texts>();
    given.targets = given.record.at("targets").get<Texts>();
    visit(given);
  }
}

/// The rows of the sources and the memory of some texts.
inline Memory memory_of(const EncoderDecoder& model, const Texts& sources) {
  const PackedTexts texts = packed(sources);
  return model.memory(model.encode(texts.ids, texts.ends), texts.ends);
}

}  // namespace attn::testing
