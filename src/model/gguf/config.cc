// src/model/gguf/config.cc: reads the architecture of a GGUF file's model.
#include "model/gguf/architecture.h"
#include "model/gguf/model.h"

#include <attn/error.h>

#include "io/source.h"
#include "runtime/format.h"

#include <algorithm>

namespace attn::gguf {
namespace {

using Config = ModelConfig;

/// Keys, behind the architecture's name, that change what a model computes, with the only value that attn's models
/// have. Other programs write them for architectures that attn does not read.
constexpr std::pair<const char*, double> fixed[] = {
    {"expert_count", 0},
    {"logit_scale", 1},
    {"residual_scale", 1},
    {"embedding_scale", 1},
    {"attention.scale", 0},
    {"attn_logit_softcapping", 0},
    {"final_logit_softcapping", 0},
    {"attention.clamp_kqv", 0},
    {"attention.max_alibi_bias", 0},
};

/// Returns a width of heads: of queries and keys, which must be that of values; 0 for the default.
std::int64_t head_dim_of(const GgufFile& file, const std::string& prefix) {
  const std::string key = prefix + "attention.key_length", value = prefix + "attention.value_length";
  const std::int64_t dim = file.integer(key, 0);
  if (file.integer(value, dim) != dim) file.refuse(value, "it must be that of keys, " + std::to_string(dim));
  return dim;
}

void read_rotary(const GgufFile& file, const std::string& prefix, Config& config) {
  config.rotary_theta = file.number(prefix + "rope.freq_base", 10000);
  const std::int64_t dim = config.dim_of_head();
  if (const std::string key = prefix + "rope.dimension_count"; file.integer(key, dim) != dim)
    file.refuse(key, "attn's models rotate whole heads: it must be " + std::to_string(dim));
  // Once the scale was a number of its own.
  if (const std::string key = prefix + "rope.scale_linear"; file.number(key, 1) != 1) file.refuse(key, "it must be 1");
  if (const std::string key = prefix + "rope.scaling.type"; file.text(key, "none") != "none")
    if (file.number(prefix + "rope.scaling.factor", 0) != 1)
      file.refuse(key, "attn reads none, and Llama 3's factors in rope_freqs.weight");
  config.rotary_scaling = scaling_of(file, dim, config.rotary_theta);
}

/// Returns the ids that end a text: the end of the text, and of a turn.
std::vector<std::int64_t> ends_of(const GgufFile& file, std::int64_t vocab_size) {
  std::vector<std::int64_t> ends;
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
    if (!file.has(key)) continue;
    const std::int64_t id = file.integer(key);
    if (id < 0 || id >= vocab_size) file.refuse(key, "there are " + std::to_string(vocab_size) + " tokens");
    if (std::find(ends.begin(), ends.end(), id) == ends.end()) ends.push_back(id);
  }
  return ends;
}

}  // namespace

const Architecture& architecture_of(const GgufFile& file) {
  constexpr const char* key = "general.architecture";
  const std::string name = file.text(key);
  const auto found = std::find_if(std::begin(architectures), std::end(architectures),
                                  [&](const Architecture& one) { return name == one.name; });
  if (found == std::end(architectures)) {
    std::string all;
    for (const Architecture& one : architectures) all += (all.empty() ? "" : ", ") + std::string(one.name);
    file.refuse(key, "attn reads " + all);
  }
  return *found;
}

ModelConfig config_of(const GgufFile& file) {
  const Architecture& architecture = architecture_of(file);
  const std::string prefix = std::string(architecture.name) + ".";
  const bool gpt2 = architecture.family == Family::gpt2;
  for (const auto& [key, value] : fixed)
    if (const std::string whole = prefix + key; file.has(whole) && file.number(whole) != value)
      file.refuse(whole, runtime::format("attn's models have no such thing: it must be {}", value));
  if (const std::string key = prefix + "attention.causal"; !file.boolean(key, true))
    file.refuse(key, "it must be true");

  const GgufFile::Entry* const table = file.find("token_embd.weight");
  if (table == nullptr || table->sizes.size() != 2)
    throw ValueError(runtime::format("{}: token_embd.weight {}", file.name(),
                                     table == nullptr ? "is missing" : "must have two sizes"));
  const auto has = [&](const char* tensor) { return file.find(tensor) != nullptr; };
  Config config{
      .vocab_size = table->sizes[0],
      .context = file.integer(prefix + "context_length"),
      .layers = file.integer(prefix + "block_count"),
      .heads = file.integer(prefix + "attention.head_count"),
      .kv_heads = file.integer(prefix + "attention.head_count_kv", 0),
      .width = file.integer(prefix + "embedding_length"),
      .head_dim = head_dim_of(file, prefix),
      .mlp_width = file.integer(prefix + "feed_forward_length"),
      .norm_eps = file.number(prefix + (gpt2 ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon")),
      .tied_head = !has("output.weight")};
  if (!gpt2) {
    config.norm = Config::Norm::rms_norm;
    config.positions = Config::Positions::rotary;
    config.activation = Config::Activation::swiglu;
    config.attention_bias = has("blk.0.attn_q.bias");
    config.attention_out_bias = has("blk.0.attn_output.bias");
    config.mlp_bias = has("blk.0.ffn_down.bias");
    config.qk_norm = architecture.family == Family::qwen3;
    config.sliding_window = file.integer(prefix + "attention.sliding_window", 0);
    // A family that writes no other output bias is that of the config.
    if (config.attention_out_bias == config.attention_bias) config.attention_out_bias.reset();
  }
  try {
    config.end_tokens = ends_of(file, config.vocab_size);
    config.check();  // before the sizes are used
    if (!gpt2) read_rotary(file, prefix, config);
    config.check();
  } catch (const ValueError& error) {
    const std::string text = error.what();
    throw ValueError(text.starts_with(file.name()) ? text : file.name() + ": " + text);
  }
  return config;
}

}  // namespace attn::gguf
