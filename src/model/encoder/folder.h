// src/model/encoder/folder.h: reads what a folder of sentence-transformers has besides the model: its modules, the
// pooling, the maximum length, prompts.
#pragma once
#include <attn/encoder.h>

#include <optional>
#include <string>
#include <vector>

namespace attn {

inline constexpr const char* encoder_load_name = "TextEncoder::load";  // of errors

/// What the files of a folder say. The folders are paths.
struct TextEncoder::Folder {
  std::string transformer;  // that of config.json and the weights
  EncoderPooling pooling;
  bool pools = true;                       // false: there are modules, but no Pooling, as for scores
  std::optional<std::int64_t> max_tokens;  // max_seq_length
  EncoderPrompts prompts;
  std::string activation;          // of scores: a class of torch; empty: the model's config.json may name one
  std::vector<std::string> dense;  // those of the linear maps, in the order in which they are applied
  /// Reads it. Without modules.json the folder is the model itself.
  static Folder read(const std::string& folder);
  /// Loads an encoder from a GGUF file.
  static TextEncoder load_gguf(const std::string& path, std::optional<Dtype> dtype);
};

}  // namespace attn
