// src/model/gguf/tokenizer.h: the tokenizer of a GGUF file's metadata in the form of a tokenizer.json.
#pragma once
#include <attn/gguf.h>

#include "model/tokenizer_fields.h"

namespace attn::gguf {

/// Returns the tokenizer of the metadata as Hugging Face's library would write it to tokenizer.json, with the
/// vocabulary as separate lists. ValueError names a kind of tokenizer or pre-tokenizer that attn does not read, or a
/// list that is wrong.
TokenizerFields tokenizer_of(const GgufFile& file);

}  // namespace attn::gguf
