// src/model/gguf/notes.h: the name, chat template and special tokens that the files of a model state; attn convert
// copies them between GGUF files and folders.
#pragma once
#include <attn/model.h>
#include <attn/tokenizer.h>

#include <array>
#include <optional>
#include <string>

namespace attn::gguf {

class Metadata;

struct Notes {
  enum Which { begin, end, unknown, separator, padding, mask, count };
  std::string name;  // "": no file names the model
  std::optional<std::string> chat_template;
  std::array<std::optional<std::int64_t>, count> tokens;  // the ids of special tokens
};

/// Reads them from a GGUF file, or from a folder. There the name is the last part of _name_or_path in config.json, else
/// the folder's; the special tokens are those of tokenizer_config.json or special_tokens_map.json, if the tokenizer
/// (null: none) knows their texts, else the ids in config.json. An id that the model does not have, such as -1, stands
/// for none.
/// Errors   those of the files; ValueError names a key or field of another type, and a text that is not UTF-8
Notes notes_of(const std::string& path, const Tokenizer* tokenizer, std::int64_t vocab_size);

/// Adds them to the keys of a GGUF file, except the end token.
void add_notes(Metadata& metadata, const Notes& notes);

/// Adds them to the config.json and tokenizer_config.json of a folder in which model and tokenizer were saved.
void save_notes(const std::string& folder, const Notes& notes, const Tokenizer* tokenizer);

/// Copies the files that hold them from one folder to another, except those that exist there already.
void copy_notes(const std::string& from, const std::string& to);

/// Returns the key of the metadata that has the id.
const char* key_of(Notes::Which which);

}  // namespace attn::gguf
