// src/model/gguf/write.h: writes a model as a GGUF file.
#pragma once
#include <attn/model.h>
#include <attn/tokenizer.h>

#include "model/gguf/notes.h"

#include <string>

namespace attn::gguf {

/// Writes a model, and its tokenizer unless null, as a GGUF file of version 3, whole or not at all. Matrices have the
/// type; those whose rows are no multiple of its blocks, and vectors, are F32.
/// Errors   ValueError for an architecture, a tokenizer or weights that the file cannot hold; IoError
void write(const std::string& path, const LanguageModel& model, const Tokenizer* tokenizer, const std::string& type,
           const Notes& notes = {});

}  // namespace attn::gguf
