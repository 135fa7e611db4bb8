// src/model/gguf/config.cc: reads the architecture of a GGUF file's model.
#include "model/gguf/architecture.h"
#include "model/gguf/mapped_file.h"
#include "model/gguf/model.h"

#include <attn/error.h>

#include "io/source.h"
#include "runtime/format.h"

#include <algorithm>

namespace attn::gguf {
namespace {

using Config = ModelConfig;

/// Keys, after the architecture's name, that change what a model computes, with the only value that attn's models have.
/// Other programs write them for architectures that attn does not read.
constexpr std::pair<const char*, double> fixed[] = {
    {"expert_count", 0},    {"logit_scale", 1},         {"residual_scale", 1},           {"embedding_scale", 1},
    {"attention.scale", 0}, {"attention.clamp_kqv", 0}, {"attention.max_alibi_bias", 0},
};

/// Returns a width of heads: of queries and keys, which must be that of values; 0 for the default.
std::int64_t head_dim_of(const GgufFile& file, const std::string& prefix) {
  const std::string key = prefix + "attention.key_length", value = prefix + "attention.value_length";
  const std::int64_t dim = file.integer(key, 0);
  if (file.integer(value, dim) != dim) file.refuse(value, "it must be that of keys, " + std::to_string(dim));
  return dim;
}

/// Reads a cap of logits or scores, which only Gemma's models have. `usual`: that of files without the key.
double read_cap(const GgufFile& file, const std::string& key, bool known, double usual) {
  const double cap = file.number(key, usual);
  if (!known && cap != 0) file.refuse(key, "attn's models have no such thing: it must be 0");
  return cap;
}

/// Reads what Gemma's models have, and the layers' windows alone.
void read_gemma(const GgufFile& file, Family family, const std::string& prefix, Config& config) {
  const bool gemma2 = family == Family::gemma2;
  config.norm = Config::Norm::rms_norm_plus_one;
  config.activation = Config::Activation::geglu_tanh;
  config.post_norms = config.scaled_embedding = true;
  config.attention_softcap = read_cap(file, prefix + "attn_logit_softcapping", gemma2, gemma2 ? 50 : 0);
  config.final_softcap = read_cap(file, prefix + "final_logit_softcapping", true, gemma2 ? 30 : 0);
  // Files do not say by what scores are divided. The models of 27B have another number than head_dim, as in llama.cpp.
  if (config.layers == (gemma2 ? 46 : 62)) {
    const double scalar = static_cast<double>(config.width) / static_cast<double>(config.heads);
    if (scalar != static_cast<double>(config.dim_of_head())) config.query_scalar = scalar;
  }
}

/// Returns for each layer whether it is the last of a period. The architecture gives the period, as in llama.cpp, or
/// attention.sliding_window_pattern does.
std::vector<bool> last_of_period(const GgufFile& file, Family family, const std::string& prefix, std::int64_t layers) {
  const std::string key = prefix + "attention.sliding_window_pattern";
  std::int64_t period = layer_period(family);
  std::vector<bool> last(static_cast<std::size_t>(layers));
  if (is_gemma(family) && file.has(key)) {
    const std::vector<std::int64_t> windowed = file.integers(key);
    if (windowed.size() != 1 && static_cast<std::int64_t>(windowed.size()) != layers)
      file.refuse(key, runtime::format("it must say it for each of {} layers", layers));
    if (windowed.size() > 1) {
      for (std::size_t n = 0; n < last.size(); ++n) last[n] = windowed[n] == 0;
      return last;
    }
    period = windowed[0];
  }
  for (std::int64_t n = 0; n < layers; ++n) last[static_cast<std::size_t>(n)] = period > 0 && (n + 1) % period == 0;
  return last;
}

/// Reads rotary embedding and the windows.
void read_layers(const GgufFile& file, Family family, const std::string& prefix, Config& config) {
  const double theta = file.number(prefix + "rope.freq_base", 10000);
  const std::int64_t dim = config.dim_of_head(), rotated = file.integer(prefix + "rope.dimension_count", dim);
  if (rotated != dim && family != Family::phi3)
    file.refuse(prefix + "rope.dimension_count",
                "this architecture's models rotate whole heads: it must be " + std::to_string(dim));
  if (rotated != dim) config.rotary_dim = rotated;
  if (rotated < 2 || rotated > dim) file.refuse(prefix + "rope.dimension_count", "it must be from 2 to head_dim");
  const LayerConfig full{.rotary_theta = theta,
                         .rotary_scaling = scaling_of(file, prefix, rotated, theta, config.context)};
  const std::int64_t window = file.integer(prefix + "attention.sliding_window", 0);
  std::vector<LayerConfig> layers(static_cast<std::size_t>(config.layers), full);
  const std::vector<bool> last = last_of_period(file, family, prefix, config.layers);
  for (std::size_t n = 0; n < layers.size(); ++n) {
    LayerConfig& layer = layers[n];
    if (family == Family::smollm3 && last[n]) layer = {.rotary = false};
    if (is_gemma(family) && last[n]) continue;
    layer.sliding_window = window;
    if (family != Family::gemma3 || window == 0) continue;
    layer.rotary_theta = file.number(prefix + "rope.freq_base_swa", 10000);
    layer.rotary_scaling.reset();
  }
  set_layers(config, layers);
}

/// Returns the ids that end a text.
std::vector<std::int64_t> ends_of(const GgufFile& file, std::int64_t vocab_size) {
  std::vector<std::int64_t> ends;
  for (const char* key : end_keys) {
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
    file.refuse(key, "attn reads " + all + (name.find("moe") != name.npos ? ", no mixtures of experts" : ""));
  }
  return *found;
}

void check_architecture(const std::string& path) {
  if (is_gguf(path)) architecture_of(GgufFile::open(path));
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
    config.qk_norm = architecture.family == Family::qwen3 || architecture.family == Family::gemma3;
    // A family that writes no other output bias is that of the config.
    if (config.attention_out_bias == config.attention_bias) config.attention_out_bias.reset();
  }
  try {
    config.end_tokens = ends_of(file, config.vocab_size);
    config.check();                                                        // before the sizes are used
    if (config.layers > static_cast<std::int64_t>(file.tensors().size()))  // before lists are made
      throw ValueError(runtime::format("{}: block_count is {}; there are only {} tensors", file.name(), config.layers,
                                       file.tensors().size()));
    if (is_gemma(architecture.family)) {
      read_gemma(file, architecture.family, prefix, config);
    } else {
      for (const char* cap : {"attn_logit_softcapping", "final_logit_softcapping"})
        read_cap(file, prefix + cap, false, 0);
    }
    if (!gpt2) read_layers(file, architecture.family, prefix, config);
    config.check();
  } catch (const ValueError& error) {
    const std::string text = error.what();
    throw ValueError(text.starts_with(file.name()) ? text : file.name() + ": " + text);
  }
  return config;
}

}  // namespace attn::gguf
