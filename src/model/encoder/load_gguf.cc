// src/model/encoder/load_gguf.cc: loads an encoder from a GGUF file; its matrices stay as the file has them.
#include "model/encoder/blocks.h"
#include "model/encoder/folder.h"
#include "model/encoder/gguf_file.h"
#include "model/gguf/model.h"
#include "model/weights_files.h"

#include "runtime/format.h"

namespace attn {
namespace {

gguf::Matrices matrices_of_encoder(const TextEncoder::Parts& parts) {
  gguf::Matrices matrices;
  if (parts.embedding.matrix) matrices.emplace("embedding.weight", parts.embedding.matrix);
  for (std::int64_t n = 0; n < parts.blocks.size(); ++n)
    parts.blocks[n].add_matrices("blocks." + std::to_string(n) + ".", matrices);
  return matrices;
}

}  // namespace

TextEncoder TextEncoder::Folder::load_gguf(const std::string& path, std::optional<Dtype> dtype) {
  const GgufFile file = GgufFile::open(path);
  if (!gguf::holds_encoder(file)) file.refuse("general.architecture", "of GGUF files with encoders attn reads bert");
  const EncoderConfig config = gguf::encoder_config_of(file);
  const std::vector<gguf::Stored> stored = gguf::stored_of_encoder(config);
  gguf::check_weights(file, stored);
  const Dtype kept = dtype.value_or(gguf::dtype_of(file));
  // matrices of f32 numbers are packed like those of a folder
  const bool keeps = gguf::keeps_matrices(file, stored, kept) && !gguf::is_f32(file, stored);
  const auto parts = std::make_shared<Parts>(config, Held{.dtype = kept, .stored = keeps});
  Folder said;
  said.pooling = gguf::encoder_pooling_of(file);
  said.prompts = gguf::encoder_prompts_of(file);
  if (file.has(gguf::length_key)) {
    said.max_tokens = file.integer(gguf::length_key);
    if (*said.max_tokens < 1) file.refuse(gguf::length_key, "it must be at least 1");
  }
  if (file.has("tokenizer.ggml.model")) parts->tokenizer = Tokenizer::load(path);
  TextEncoder encoder(config, said, parts);
  gguf::load_weights(file, stored, by_name(encoder), matrices_of_encoder(*parts));
  if (keeps)
    for (Tensor parameter : encoder.parameters()) parameter.requires_grad_(false);
  encoder.eval();
  return encoder;
}

bool TextEncoder::Parts::has_dense(const TextEncoder& encoder) { return !encoder.parts_->dense.empty(); }

}  // namespace attn
