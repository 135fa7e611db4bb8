// src/model/encoder/gguf_file.cc: reads the architecture, pooling and prompts of an encoder in a GGUF file.
#include "model/encoder/gguf_file.h"

#include <attn/error.h>

#include "runtime/format.h"

#include <algorithm>

namespace attn::gguf {
namespace {

/// Returns the rows of a table; 0 if the file has none.
std::int64_t rows_of_table(const GgufFile& file, const char* name, bool needed) {
  const GgufFile::Entry* const table = file.find(name);
  if (table == nullptr && !needed) return 0;
  if (table == nullptr || table->sizes.size() != 2)
    throw ValueError(
        runtime::format("{}: {} {}", file.name(), name, table == nullptr ? "is missing" : "must have two sizes"));
  return table->sizes[0];
}

}  // namespace

bool holds_encoder(const GgufFile& file) { return file.text("general.architecture", "") == encoder_architecture; }

EncoderConfig encoder_config_of(const GgufFile& file) {
  const std::string prefix = std::string(encoder_architecture) + ".";
  if (const std::string key = prefix + "attention.causal"; file.boolean(key, false))
    file.refuse(key, "it must be false");
  for (const char* head : {"cls.weight", "cls.output.weight"})
    if (file.find(head) != nullptr)
      throw ValueError(
          runtime::format("{}: {} belongs to a model of scores; of GGUF files attn reads encoders that give vectors",
                          file.name(), head));
  EncoderConfig config{.family = EncoderConfig::Family::bert,
                       .vocab_size = rows_of_table(file, "token_embd.weight", true),
                       .positions = rows_of_table(file, "position_embd.weight", true),
                       .layers = file.integer(prefix + "block_count"),
                       .heads = file.integer(prefix + "attention.head_count"),
                       .width = file.integer(prefix + "embedding_length"),
                       .mlp_width = file.integer(prefix + "feed_forward_length"),
                       .segments = rows_of_table(file, "token_types.weight", false),
                       .norm_eps = file.number(prefix + "attention.layer_norm_epsilon")};
  try {
    config.check();
  } catch (const ValueError& error) { throw ValueError(file.name() + ": " + error.what()); }
  if (config.layers > static_cast<std::int64_t>(file.tensors().size()))  // before lists are made
    throw ValueError(runtime::format("{}: block_count is {}; there are only {} tensors", file.name(), config.layers,
                                     file.tensors().size()));
  return config;
}

EncoderPooling encoder_pooling_of(const GgufFile& file) {
  const std::int64_t given = file.integer(pooling_key, 1);
  const auto found = std::find_if(std::begin(pooling_types), std::end(pooling_types),
                                  [&](const PoolingType& one) { return one.number == given; });
  if (found == std::end(pooling_types)) file.refuse(pooling_key, "it must be 1 (mean), 2 (cls) or 3 (last token)");
  // llama.cpp normalizes vectors by default
  return {.kinds = {found->kind}, .normalize = file.boolean(normalize_key, true)};
}

EncoderPrompts encoder_prompts_of(const GgufFile& file) {
  const auto names = file.texts(prompts_key), texts = file.texts(prompt_texts_key);
  if (names.size() != texts.size())
    file.refuse(prompt_texts_key, runtime::format("there are {} names of prompts", names.size()));
  EncoderPrompts prompts;
  for (std::size_t i = 0; i < names.size(); ++i) prompts.texts.emplace(names[i], texts[i]);
  prompts.default_name = file.text(default_prompt_key, "");
  if (!prompts.default_name.empty() && !prompts.texts.contains(prompts.default_name))
    file.refuse(default_prompt_key, "it must be the name of a prompt");
  return prompts;
}

std::vector<Stored> stored_of_encoder(const EncoderConfig& c) {
  std::vector<Stored> result;
  const auto tensor = [&](const std::string& name, const std::string& parameter, const Dims& sizes,
                          std::int64_t row = 0) { result.push_back({{name, sizes, parameter, row, sizes[0]}}); };
  const auto map = [&](const std::string& name, const std::string& parameter, std::int64_t in, std::int64_t out,
                       std::int64_t row = 0) {
    tensor(name + ".weight", parameter + ".weight", {out, in}, row);
    tensor(name + ".bias", parameter + ".bias", {out}, row);
  };
  const auto norm = [&](const std::string& name, const std::string& parameter) {
    tensor(name + ".weight", parameter + ".weight", {c.width});
    tensor(name + ".bias", parameter + ".bias", {c.width});
  };
  tensor("token_embd.weight", "embedding.weight", {c.vocab_size, c.width});
  tensor("position_embd.weight", "positions.weight", {c.positions, c.width});
  if (c.segments > 0) tensor("token_types.weight", "segments.weight", {c.segments, c.width});
  norm("token_embd_norm", "embedding_norm");
  for (std::int64_t n = 0; n < c.layers; ++n) {
    const std::string from = "blk." + std::to_string(n) + ".", to = "blocks." + std::to_string(n) + ".";
    std::int64_t row = 0;
    for (const char* part : {"attn_q", "attn_k", "attn_v"})
      map(from + part, to + "qkv", c.width, c.width, c.width * row++);
    map(from + "attn_output", to + "out", c.width, c.width);
    norm(from + "attn_output_norm", to + "attention_norm");
    map(from + "ffn_up", to + "up", c.width, c.mlp_width);
    map(from + "ffn_down", to + "down", c.mlp_width, c.width);
    norm(from + "layer_output_norm", to + "mlp_norm");
  }
  return result;
}

}  // namespace attn::gguf
