// src/model/chat_template.cc: finds the chat template of a model.
#include "model/chat_template.h"

#include <attn/gguf.h>

#include "io/is_file.h"
#include "model/json_fields.h"
#include "model/weights_files.h"

#include <filesystem>

namespace attn {
namespace {

namespace fs = std::filesystem;

/// Returns the template in a JSON file: a text, or that named "default" of several.
std::optional<std::string> template_in(const char* function, const fs::path& path) {
  const std::optional<JsonFields> fields = fields_of(function, path);
  if (!fields || !fields->has("chat_template")) return std::nullopt;
  const nlohmann::json& given = fields->at("chat_template");
  if (given.is_array())
    for (const nlohmann::json& one : given)
      if (one.is_object() && one.value("name", nlohmann::json()) == "default" && one.contains("template") &&
          one["template"].is_string())
        return one["template"].get<std::string>();
  if (given.is_null()) return std::nullopt;
  if (!given.is_string()) fields->refuse("chat_template", "it must be a text");
  return given.get<std::string>();
}

}  // namespace

std::optional<std::string> chat_template_of(const char* function, const std::string& path) {
  if (std::error_code unknown; !fs::is_directory(path, unknown)) {
    constexpr const char* key = "tokenizer.chat_template";
    const GgufFile file = GgufFile::open(path);
    return file.has(key) ? std::optional(file.text(key)) : std::nullopt;
  }
  const fs::path folder(path);
  if (io::is_file(folder / "chat_template.jinja"))
    return read_text(function, (folder / "chat_template.jinja").string());
  if (auto found = template_in(function, folder / "tokenizer_config.json")) return found;
  return template_in(function, folder / "chat_template.json");
}

}  // namespace attn
