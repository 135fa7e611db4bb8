// src/model/chat_format.cc: recognises the chat format of a model's template.
#include <attn/chat.h>
#include <attn/error.h>

#include "io/source.h"
#include "model/chat_template.h"
#include "runtime/format.h"

#include <algorithm>
#include <array>

namespace attn {
namespace {

constexpr const char* formats = "chatml, llama3, gemma or mistral";

/// Formats that attn does not write, by what is in their templates and in none of those that it does.
struct Other {
  const char *token, *name;
};
constexpr std::array others{Other{"<|im_sep|>", "Phi-4"},
                            Other{"<|im_user|>", "Kimi"},
                            Other{"<<SYS>>", "Llama 2"},
                            Other{"<|start_of_role|>", "Granite"},
                            Other{"<|START_OF_TURN_TOKEN|>", "Command R"},
                            Other{"<\xEF\xBD\x9CUser\xEF\xBD\x9C>", "DeepSeek"},
                            Other{"<|channel|>", "gpt-oss"},
                            Other{"<|turn>", "Gemma 4"},
                            Other{"<|header_start|>", "Llama 4"},
                            Other{"<|user|>", "Phi-3, Zephyr or GLM"},
                            Other{"### Instruction", "Alpaca"}};

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

/// Returns whether the text has the part at the beginning or the end of a string: 'part or "part, part' or part".
bool begins_string(std::string_view text, const std::string& part) {
  return has(text, "'" + part) || has(text, "\"" + part);
}
bool ends_string(std::string_view text, const std::string& part) {
  return has(text, part + "'") || has(text, part + "\"");
}

/// Returns the system text that a ChatML template writes if the conversation has none: the first that is one literal.
std::optional<std::string> literal_system(std::string_view text) {
  constexpr std::string_view begin = "<|im_start|>system", end = "<|im_end|>";
  for (std::size_t at = text.find(begin); at != std::string_view::npos; at = text.find(begin, at + 1)) {
    std::string_view rest = text.substr(at + begin.size());
    rest = rest.substr(0, rest.find(end));
    if (rest.size() + at + begin.size() == text.size()) continue;  // no end
    if (rest.starts_with("\\n")) rest.remove_prefix(2);
    else if (rest.starts_with("\n")) rest.remove_prefix(1);
    else continue;
    if (rest.empty() || rest.find_first_of("'\"{}") != std::string_view::npos) continue;
    std::string system(rest);
    for (std::size_t n; (n = system.find("\\n")) != std::string::npos;) system.replace(n, 2, "\n");
    return system;
  }
  return std::nullopt;
}

/// Sets the spaces of Mistral's versions.
ChatFormat mistral_of(std::string_view text) {
  ChatFormat format = ChatFormat::mistral();
  format.user_begin = ends_string(text, " [INST] ") ? " [INST] " : ends_string(text, "[INST] ") ? "[INST] " : "[INST]";
  format.user_end = begins_string(text, " [/INST]") ? " [/INST]" : "[/INST]";
  if (has(text, "eos_token + ' '") || has(text, "eos_token + \" \"")) format.answer_end = " ";
  if (has(text, "[SYSTEM_PROMPT]")) {
    format.system_in_message = false;
    format.system_begin = "[SYSTEM_PROMPT]";
    format.system_end = "[/SYSTEM_PROMPT]";
  }
  return format;
}

}  // namespace

ChatFormat ChatFormat::chatml() {
  return {.name = "chatml",
          .system_begin = "<|im_start|>system\n",
          .system_end = "<|im_end|>\n",
          .user_begin = "<|im_start|>user\n",
          .user_end = "<|im_end|>\n",
          .answer_begin = "<|im_start|>assistant\n",
          .end_token = "<|im_end|>",
          .answer_end = "\n"};
}

ChatFormat ChatFormat::llama3() {
  return {.name = "llama3",
          .begin = "<|begin_of_text|>",
          .system_begin = "<|start_header_id|>system<|end_header_id|>\n\n",
          .system_end = "<|eot_id|>",
          .user_begin = "<|start_header_id|>user<|end_header_id|>\n\n",
          .user_end = "<|eot_id|>",
          .answer_begin = "<|start_header_id|>assistant<|end_header_id|>\n\n",
          .end_token = "<|eot_id|>",
          .trimmed = true};
}

ChatFormat ChatFormat::gemma() {
  return {.name = "gemma",
          .begin = "<bos>",
          .system_end = "\n\n",
          .system_in_message = true,
          .user_begin = "<start_of_turn>user\n",
          .user_end = "<end_of_turn>\n",
          .answer_begin = "<start_of_turn>model\n",
          .end_token = "<end_of_turn>",
          .answer_end = "\n",
          .trimmed = true};
}

ChatFormat ChatFormat::mistral() {
  return {.name = "mistral",
          .begin = "<s>",
          .system_end = "\n\n",
          .system_in_message = true,
          .user_begin = "[INST] ",
          .user_end = "[/INST]",
          .end_token = "</s>"};
}

ChatFormat ChatFormat::named(std::string_view name) {
  for (ChatFormat format : {chatml(), llama3(), gemma(), mistral()})
    if (format.name == name) return format;
  throw ValueError(runtime::format("chat: format is \"{}\"; it must be {}", io::one_line(name), formats));
}

ChatFormat ChatFormat::of_template(std::string_view text, const std::string& name) {
  const auto other = std::find_if(others.begin(), others.end(), [&](const Other& o) { return has(text, o.token); });
  if (other == others.end()) {
    if (has(text, "<|im_start|>")) {
      ChatFormat format = chatml();
      format.system = literal_system(text);
      return format;
    }
    if (has(text, "<|start_header_id|>")) {
      ChatFormat format = llama3();
      if (has(text, "Cutting Knowledge Date: December 2023")) {
        format.system_begin += "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n";
        format.system = "";
      }
      return format;
    }
    if (has(text, "<start_of_turn>")) return gemma();
    if (has(text, "[INST]")) return mistral_of(text);
  }
  const std::string what =
      other == others.end() ? "unknown" : runtime::format("that of {} ({})", other->name, other->token);
  throw ValueError(runtime::format("{} is {}; attn knows {}, which may be given as the format", name, what, formats));
}

ChatFormat ChatFormat::load(const std::string& path) {
  const std::optional<std::string> text = chat_template_of("chat", path);
  if (!text) throw ValueError(runtime::format("chat: {} has no chat template; give the format: {}", path, formats));
  return of_template(*text, "chat: the chat template of " + path);
}

}  // namespace attn
