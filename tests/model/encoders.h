// tests/model/encoders.h: tiny encoders of transformers with their figures, the golden ones or those that ATTN_ENCODERS
// names, and folders of sentence-transformers around them.
#pragma once
#include <attn/encoder.h>
#include <attn/ops.h>

#include "support/folder.h"
#include "support/golden.h"
#include "support/places.h"

#include <cstdlib>
#include <sstream>

namespace attn::testing {

/// Texts one after another.
struct PackedTexts {
  Tensor ids, ends, segments;
};

inline PackedTexts packed(const std::vector<std::vector<std::int64_t>>& texts,
                          const std::vector<std::vector<std::int64_t>>& segments = {}) {
  std::vector<std::int64_t> ids, ends = {0}, types;
  for (const auto& text : texts) {
    ids.insert(ids.end(), text.begin(), text.end());
    ends.push_back(static_cast<std::int64_t>(ids.size()));
  }
  for (const auto& row : segments) types.insert(types.end(), row.begin(), row.end());
  return {tensor<std::int64_t>(ids), tensor<std::int64_t>(ends),
          segments.empty() ? Tensor() : tensor<std::int64_t>(types)};
}

struct GivenEncoder {
  std::string folder;
  nlohmann::json record;
  std::vector<std::vector<std::int64_t>> texts, segments;
  PackedTexts all() const { return packed(texts, segments); }
  /// Some of the texts, in this order.
  PackedTexts some(const std::vector<std::size_t>& which) const {
    std::vector<std::vector<std::int64_t>> ids, types;
    for (const std::size_t i : which) {
      ids.push_back(texts[i]);
      if (!segments.empty()) types.push_back(segments[i]);
    }
    return packed(ids, types);
  }
};

/// Calls visit for each encoder.
template <typename F>
void each_encoder(F&& visit) {
  std::vector<std::string> folders;
  if (const char* given = std::getenv("ATTN_ENCODERS")) {
    std::istringstream list(given);
    for (std::string folder; std::getline(list, folder, ':');) folders.push_back(folder);
  } else {
    for (const char* name : {"bert", "roberta", "mpnet", "distilbert", "modernbert"})
      folders.push_back(golden_path(std::string("model/encoders/") + name));
  }
  for (const std::string& folder : folders) {
    SCOPED_TRACE(folder);
    GivenEncoder given{folder, nlohmann::json::parse(content_of(folder + "/encoded.json")), {}, {}};
    given.texts = given.record.at("texts").get<std::vector<std::vector<std::int64_t>>>();
    if (given.record.contains("segments"))
      given.segments = given.record.at("segments").get<std::vector<std::vector<std::int64_t>>>();
    visit(given);
  }
}

inline void write_text(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

/// Makes a folder of sentence-transformers around an encoder: with this config of its Pooling, and a Normalize.
inline void write_sentence_folder(const std::string& from, const std::string& to, const std::string& pooling,
                                  bool normalize) {
  for (const char* name : {"config.json", "model.safetensors"})
    std::filesystem::copy_file(std::filesystem::path(from) / name, std::filesystem::path(to) / name);
  std::string modules = R"([{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"})";
  if (normalize)
    modules += R"(, {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"})";
  write_text(to + "/modules.json", modules + "]");
  write_text(to + "/1_Pooling/config.json", pooling);
}

}  // namespace attn::testing
