// fuzz/encoder_folder.h: a folder with a tiny encoder of texts, as sentence-transformers stores it.
#pragma once
#include "folder.h"

#include <attn/ops.h>
#include <attn/random.h>
#include <attn/safetensors.h>

#include <string>
#include <utility>
#include <vector>

namespace attn::fuzz {

/// The texts of the folder, which a fuzzer replaces one by one.
inline const std::vector<std::pair<std::string, std::string>> encoder_files = {
    {"config.json", R"({"model_type":"bert","vocab_size":5,"hidden_size":4,"num_hidden_layers":1,
                       "num_attention_heads":2,"intermediate_size":3,"max_position_embeddings":8})"},
    {"modules.json", R"([{"type":"sentence_transformers.models.Transformer","path":""},
                         {"type":"sentence_transformers.models.Pooling","path":"pooling"}])"},
    {"pooling/config.json", R"({"pooling_mode_mean_tokens":true})"},
    {"sentence_bert_config.json", R"({"max_seq_length":6})"},
    {"config_sentence_transformers.json", R"({"prompts":{"query":"q: "}})"},
    {"tokenizer.json", R"({"model":{"type":"WordPiece","unk_token":"a","vocab":{"a":0,"b":1,"##c":2}}})"}};

/// Writes the weights of an encoder with that config.json.
inline void write_encoder_weights(const Folder& folder) {
  std::vector<std::pair<std::string, Tensor>> tensors;
  const auto add = [&](const std::string& name, const Dims& sizes, bool biased = true) {
    tensors.emplace_back(name + ".weight", randn(sizes));
    if (biased) tensors.emplace_back(name + ".bias", randn({sizes[0]}));
  };
  add("embeddings.word_embeddings", {5, 4}, false);
  add("embeddings.position_embeddings", {8, 4}, false);
  add("embeddings.token_type_embeddings", {2, 4}, false);
  add("embeddings.LayerNorm", {4});
  for (const char* name : {"self.query", "self.key", "self.value", "output.dense"})
    add(std::string("encoder.layer.0.attention.") + name, {4, 4});
  add("encoder.layer.0.attention.output.LayerNorm", {4});
  add("encoder.layer.0.intermediate.dense", {3, 4});
  add("encoder.layer.0.output.dense", {4, 3});
  add("encoder.layer.0.output.LayerNorm", {4});
  save_safetensors(folder.path() + "/model.safetensors", tensors);
}

}  // namespace attn::fuzz
