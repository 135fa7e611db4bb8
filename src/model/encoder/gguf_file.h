// src/model/encoder/gguf_file.h: encoders of texts in GGUF files, under llama.cpp's names for BERT.
#pragma once
#include <attn/encoder.h>
#include <attn/gguf.h>

#include "model/gguf/names.h"

#include <string>
#include <vector>

namespace attn::gguf {

inline constexpr const char* encoder_architecture = "bert";  // also written for RoBERTa, XLM-R and DistilBERT

/// Keys of llama.cpp, and attn's own, which llama.cpp does not read.
inline constexpr const char *pooling_key = "bert.pooling_type", *segments_key = "tokenizer.ggml.token_type_count",
                            *normalize_key = "attn.embedding.normalize", *length_key = "attn.embedding.max_tokens",
                            *prompts_key = "attn.prompts.names", *prompt_texts_key = "attn.prompts.texts",
                            *default_prompt_key = "attn.prompts.default";

/// The values of bert.pooling_type that are a kind of pooling here.
struct PoolingType {
  std::int64_t number;
  EncoderPooling::Kind kind;
};
inline constexpr PoolingType pooling_types[] = {
    {1, EncoderPooling::Kind::mean}, {2, EncoderPooling::Kind::cls}, {3, EncoderPooling::Kind::lasttoken}};

/// Returns whether a path is the folder of an encoder, by modules.json or the model_type in config.json.
bool is_encoder_folder(const std::string& path);

/// Returns whether the file holds an encoder.
bool holds_encoder(const GgufFile& file);

/// Return what the metadata and the sizes of tables say. ValueError names a key with a value that attn does not have.
EncoderConfig encoder_config_of(const GgufFile& file);
EncoderPooling encoder_pooling_of(const GgufFile& file);
EncoderPrompts encoder_prompts_of(const GgufFile& file);

/// Lists the tensors of an encoder's file.
std::vector<Stored> stored_of_encoder(const EncoderConfig& config);

}  // namespace attn::gguf
