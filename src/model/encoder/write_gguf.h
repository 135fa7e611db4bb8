// src/model/encoder/write_gguf.h: writes an encoder of texts as a GGUF file.
#pragma once
#include <attn/encoder.h>

#include "model/gguf/metadata.h"
#include "model/gguf/notes.h"

#include <string>

namespace attn::gguf {

/// Writes an encoder as a GGUF file, whole or not at all. Matrices have the type; those whose rows are no multiple of
/// its blocks, vectors and the tables of positions and segments are F32.
/// Errors   ValueError for an encoder, a pooling or a tokenizer that the file cannot hold; IoError
void write_encoder(const std::string& path, const TextEncoder& encoder, const std::string& type, const Notes& notes);

/// Adds the keys of an encoder's tokenizer. ValueError for one that a GGUF file cannot hold.
void add_encoder_tokenizer(Metadata& metadata, const Tokenizer& tokenizer, std::int64_t vocab_size);

}  // namespace attn::gguf
