// tests/model/chat_model.h: a random model with the tokens of all chat formats.
#pragma once
#include <attn/tokenizer.h>

#include "model/lively.h"
#include "support/folder.h"

#include <nlohmann/json.hpp>

#include <string>

namespace attn::testing {

/// Bytes, and the special tokens of the formats.
inline Tokenizer chat_tokenizer() {
  nlohmann::json file = nlohmann::json::parse(Tokenizer::train("the the the", Tokenizer::Kind::bpe, 260).to_json());
  std::size_t next = file["model"]["vocab"].size();
  file["added_tokens"] = nlohmann::json::array();
  for (const char* token :
       {"<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
        "<bos>", "<start_of_turn>", "<end_of_turn>", "<s>", "</s>"})
    file["added_tokens"].push_back({{"id", next++}, {"content", token}, {"special", true}, {"normalized", false}});
  return Tokenizer::parse(file.dump());
}

inline LanguageModel chat_model(std::int64_t context) {
  return lively({.vocab_size = chat_tokenizer().size(),
                 .context = context,
                 .layers = 2,
                 .heads = 2,
                 .width = 16,
                 .norm = ModelConfig::Norm::rms_norm,
                 .positions = ModelConfig::Positions::rotary,
                 .activation = ModelConfig::Activation::swiglu,
                 .attention_bias = false,
                 .mlp_bias = false});
}

/// Writes the model as a folder, with this chat template; none if it is empty.
inline std::string write_chat_model(const Folder& folder, std::int64_t context, const std::string& chat_template) {
  const std::string path = folder.file("model");
  chat_model(context).save(path);
  chat_tokenizer().save(path);
  nlohmann::json config = nlohmann::json::object();
  if (!chat_template.empty()) config["chat_template"] = chat_template;
  folder.write("model/tokenizer_config.json", config.dump());
  return path;
}

// Templates as models have them, without their tools.
inline const std::string smollm_template =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nYou "
    "are "
    "a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\\n' }}{% endif %}{{'<|im_start|>' + "
    "message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ "
    "'<|im_start|>assistant\\n' }}{% endif %}";
inline const std::string plain_chatml_template =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "
    "'\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
inline const std::string llama3_template =
    "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + "
    "message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 "
    "%}{% "
    "set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{{ "
    "'<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}";

}  // namespace attn::testing
