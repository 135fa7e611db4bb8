// src/model/chat_template.h: finds the chat template of a model.
#pragma once
#include <optional>
#include <string>

namespace attn {

/// Returns the template of a GGUF file or of a folder: chat_template.jinja, else in tokenizer_config.json, else in
/// chat_template.json; nullopt if there is none. Errors begin with `function`.
std::optional<std::string> chat_template_of(const char* function, const std::string& path);

}  // namespace attn
