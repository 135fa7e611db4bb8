// src/model/gguf/notes.cc: reads a model's name, chat template and special tokens from a GGUF file or a folder, and
// writes them into the other.
#include "model/gguf/notes.h"

#include <attn/error.h>
#include <attn/gguf.h>
#include <attn/text.h>

#include "io/is_file.h"
#include "io/write.h"
#include "model/chat_template.h"
#include "model/gguf/mapped_file.h"
#include "model/gguf/metadata.h"
#include "model/json_fields.h"
#include "model/tokenizer_state.h"
#include "model/weights_files.h"
#include "runtime/format.h"

#include <nlohmann/json.hpp>

#include <filesystem>
#include <span>

namespace attn::gguf {
namespace {

namespace fs = std::filesystem;
using Document = nlohmann::ordered_json;  // the fields of a file that is written again stay in their order

constexpr const char* caller = "convert";
constexpr const char *name_key = "general.name", *template_key = "tokenizer.chat_template";
constexpr const char *config_name = "config.json", *name_field = "_name_or_path";
constexpr const char* special_tokens_file = "special_tokens_map.json";
constexpr const char* token_files[] = {tokenizer_config_file, special_tokens_file};

struct SpecialToken {
  const char *key, *token;   // in GGUF files, and in tokenizer_config.json
  const char* id = nullptr;  // in config.json
};
/// In the order of Notes::Which.
constexpr SpecialToken special_tokens[] = {{"tokenizer.ggml.bos_token_id", "bos_token", "bos_token_id"},
                                           {"tokenizer.ggml.eos_token_id", "eos_token", "eos_token_id"},
                                           {"tokenizer.ggml.unknown_token_id", "unk_token"},
                                           {"tokenizer.ggml.seperator_token_id", "sep_token", "sep_token_id"},
                                           {"tokenizer.ggml.padding_token_id", "pad_token", "pad_token_id"},
                                           {"tokenizer.ggml.mask_token_id", "mask_token"}};
static_assert(std::size(special_tokens) == Notes::count);

/// Returns the text of a token: a string, or the content of an object; "": there is none.
std::string text_of_token(const JsonFields& fields, const char* field) {
  const nlohmann::json& given = fields.at(field);
  if (!given.is_object()) return fields.text(field, "");
  return fields.object(field)->text("content", "");
}

std::optional<std::int64_t> token_of_folder(const fs::path& folder, const SpecialToken& which,
                                            const std::optional<JsonFields>& config, const Tokenizer* tokenizer) {
  if (tokenizer != nullptr)
    for (const char* file : token_files)
      if (const auto fields = fields_of(caller, folder / file))
        if (const std::string text = text_of_token(*fields, which.token); !text.empty())
          if (const auto id = tokenizer->find(text)) return id;
  if (!config || which.id == nullptr) return std::nullopt;
  const std::vector<std::int64_t> ids = config->ids(which.id);
  return ids.empty() ? std::nullopt : std::optional(ids[0]);
}

/// Returns what transformers calls the model, without the path of a folder where it once was.
std::string name_in(const std::optional<JsonFields>& config, const fs::path& folder) {
  const std::string name = config ? config->text(name_field, "") : "";
  if (!name.empty() && !name.starts_with('/') && !name.starts_with('.') && !name.starts_with('~')) return name;
  std::error_code unknown;  // only a folder of this machine is looked up
  const fs::path path = name.empty() ? fs::weakly_canonical(folder, unknown) : fs::path(name).lexically_normal();
  const std::string last = (path.has_filename() ? path : path.parent_path()).filename().string();
  return last == "." || last == ".." || text::invalid_utf8(last) ? "" : last;
}

Notes notes_of_folder(const fs::path& folder, const Tokenizer* tokenizer, std::int64_t vocab_size) {
  const std::optional<JsonFields> config = fields_of(caller, folder / config_name);
  Notes notes{
      .name = name_in(config, folder), .chat_template = chat_template_of(caller, folder.string()), .tokens = {}};
  for (std::size_t i = 0; i < Notes::count; ++i) {
    notes.tokens[i] = token_of_folder(folder, special_tokens[i], config, tokenizer);
    // Some models name a padding token that they do not have, such as -1: as if there was none.
    if (notes.tokens[i] && (*notes.tokens[i] < 0 || *notes.tokens[i] >= vocab_size)) notes.tokens[i].reset();
  }
  // what save_notes could not write is refused before anything is written
  if (notes.chat_template && text::invalid_utf8(*notes.chat_template))
    throw ValueError(runtime::format("{}: {}: the chat template must be UTF-8", caller, folder.string()));
  if (const fs::path fields = folder / tokenizer_config_file;
      io::is_file(fields) && Document::parse(read_text(caller, fields.string()), nullptr, false).is_discarded())
    throw ValueError(runtime::format("{}: {}: NaN and Infinity are no JSON", caller, fields.string()));
  return notes;
}

/// Returns the text of a key, which JSON can hold; nullopt if there is none.
std::optional<std::string> utf8_of(const GgufFile& file, const char* key) {
  if (!file.has(key)) return std::nullopt;
  std::string text = file.text(key);
  if (text::invalid_utf8(text)) file.refuse(key, "it must be UTF-8");
  return text;
}

Notes notes_of_file(const std::string& path, std::int64_t vocab_size) {
  const GgufFile file = GgufFile::open(path);
  Notes notes{.name = utf8_of(file, name_key).value_or(""), .chat_template = utf8_of(file, template_key), .tokens = {}};
  for (std::size_t i = 0; i < Notes::count; ++i) {
    const char* const key = special_tokens[i].key;
    if (!file.has(key)) continue;
    // Some files have an id of 32 one bits for "none".
    if (const std::int64_t id = file.integer(key); id >= 0 && id < vocab_size) notes.tokens[i] = id;
  }
  return notes;
}

Document document_of(const fs::path& path) {
  const std::string text = read_text(caller, path.string());
  JsonFields(text, path.string());  // says what is wrong with it
  return Document::parse(text);
}

void write_document(const fs::path& path, const Document& document) {
  const std::string text = document.dump(2) + "\n";
  io::write_whole(caller, path.string(), {std::as_bytes(std::span(text))});
}

}  // namespace

const char* key_of(Notes::Which which) { return special_tokens[which].key; }

Notes notes_of(const std::string& path, const Tokenizer* tokenizer, std::int64_t vocab_size) {
  return is_gguf(path) ? notes_of_file(path, vocab_size) : notes_of_folder(path, tokenizer, vocab_size);
}

void add_notes(Metadata& metadata, const Notes& notes) {
  if (!notes.name.empty()) metadata.text(name_key, notes.name);
  if (notes.chat_template) metadata.text(template_key, *notes.chat_template);
  for (std::size_t i = 0; i < Notes::count; ++i)
    if (i != Notes::end && notes.tokens[i]) metadata.number(special_tokens[i].key, *notes.tokens[i]);
}

void save_notes(const std::string& folder, const Notes& notes, const Tokenizer* tokenizer) {
  const fs::path path(folder);
  Document config = document_of(path / config_name);
  if (!notes.name.empty()) config[name_field] = notes.name;
  for (const Notes::Which which : {Notes::begin, Notes::separator, Notes::padding})
    if (notes.tokens[which]) config[special_tokens[which].id] = *notes.tokens[which];
  write_document(path / config_name, config);
  if (tokenizer == nullptr) return;
  Document fields = document_of(path / tokenizer_config_file);
  const Tokenizer::State& state = state_of(*tokenizer);
  for (std::size_t i = 0; i < Notes::count; ++i)
    if (notes.tokens[i] && state.has(*notes.tokens[i]))
      fields[special_tokens[i].token] = state.names[static_cast<std::size_t>(*notes.tokens[i])];
  if (notes.chat_template) fields["chat_template"] = *notes.chat_template;
  write_document(path / tokenizer_config_file, fields);
}

void copy_notes(const std::string& from, const std::string& to) {
  for (const char* name : {tokenizer_config_file, special_tokens_file, "chat_template.jinja", "chat_template.json",
                           "generation_config.json"}) {
    const fs::path file = fs::path(from) / name, copy = fs::path(to) / name;
    if (!io::is_file(file) || io::is_file(copy)) continue;
    const std::string text = read_text(caller, file.string());
    io::write_whole(caller, copy.string(), {std::as_bytes(std::span(text))});
  }
}

}  // namespace attn::gguf
