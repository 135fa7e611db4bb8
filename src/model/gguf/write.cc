// src/model/gguf/write.cc: writes a model as a GGUF file: its keys, then its tensors in one type.
#include "model/gguf/write.h"

#include <attn/error.h>
#include <attn/ops.h>

#include "io/source.h"
#include "model/gguf/metadata.h"
#include "model/gguf/model.h"
#include "model/gguf/names.h"
#include "model/gguf/written.h"
#include "model/tokenizer_state.h"

#include "runtime/format.h"

#include <algorithm>
#include <map>

namespace attn::gguf {
namespace {

[[noreturn]] void refuse(const std::string& what) { throw ValueError("convert: the model " + what); }

/// Throws a ValueError unless the layers that the file cannot describe are those of the architecture.
void check_layers(const ModelConfig& c, Family family) {
  const LayersInCommon layers = in_common(c);
  const std::int64_t period = layer_period(family);
  for (std::int64_t n = 0; n < (c.per_layer.empty() ? 1 : c.layers); ++n) {
    const LayerConfig layer = c.layer(n);
    const bool last = period > 0 && (n + 1) % period == 0;
    if (family == Family::smollm3 && (layer.rotary == last || layer.sliding_window > 0))
      refuse("has other layers with positions, or windows, than smollm3 in GGUF files");
    if (is_gemma(family)) continue;  // sliding_window_pattern says it
    if (layer.sliding_window != layers.sliding_window)
      refuse("has windows in some of its layers, which GGUF files of its architecture cannot say");
  }
  if (family == Family::gemma3 && layers.windowed && layers.windowed->rotary_scaling)
    refuse("scales the frequencies of layers with a window, which GGUF files cannot say");
  const auto scaling = layers.first.rotary_scaling;
  if (scaling && scaling->kind == nn::RotaryScaling::Kind::dynamic)
    refuse("has dynamic rotary scaling, which GGUF files cannot say");
  if (scaling && !scaling->truncate)
    refuse("interpolates rotary frequencies within bounds that are not rounded, which GGUF files cannot say");
  const bool last_name = c.layers == (family == Family::gemma2 ? 46 : 62);
  const double usual =
      last_name ? static_cast<double>(c.width) / static_cast<double>(c.heads) : static_cast<double>(c.dim_of_head());
  if (is_gemma(family) && c.score_divisor() != usual)
    refuse("divides scores by the root of another number than GGUF files of its architecture stand for");
}

const Architecture& architecture_of(const ModelConfig& config) {
  const Family family = family_of(config), written = family == Family::mistral ? Family::llama : family;
  const auto found = std::find_if(std::begin(architectures), std::end(architectures),
                                  [&](const Architecture& one) { return one.family == written; });
  if (found == std::end(architectures) || config.activation == ModelConfig::Activation::gelu)
    throw ValueError("convert: the model is of no architecture of GGUF files that attn reads");
  if (written != Family::gpt2) check_layers(config, written);
  return *found;
}

/// Adds the keys of rotary embedding and windows.
void add_layers(Metadata& metadata, const std::string& prefix, Family family, const ModelConfig& c) {
  using Kind = nn::RotaryScaling::Kind;
  const LayersInCommon layers = in_common(c);
  const LayerConfig& full = family == Family::gemma3 ? layers.full.value_or(layers.first) : layers.first;
  metadata.number(prefix + "rope.dimension_count", c.rotated_dim());
  metadata.real(prefix + "rope.freq_base", full.rotary_theta);
  if (layers.any_windowed) metadata.number(prefix + "attention.sliding_window", layers.sliding_window);
  if (is_gemma(family) && layers.any_windowed) {
    std::vector<std::int32_t> windowed;
    bool usual = true;
    for (std::int64_t n = 0; n < c.layers; ++n) {
      windowed.push_back(c.layer(n).sliding_window > 0);
      usual = usual && (windowed.back() == 0) == ((n + 1) % layer_period(family) == 0);
    }
    if (!usual) metadata.integers(prefix + "attention.sliding_window_pattern", windowed);
    if (family == Family::gemma3) metadata.real(prefix + "rope.freq_base_swa", layers.windowed->rotary_theta);
  }
  const auto& scaling = full.rotary_scaling;
  if (!scaling || scaling->kind == Kind::llama3) return;
  const std::string key = prefix + "rope.scaling.";
  if (scaling->kind != Kind::linear) metadata.number(key + "original_context_length", scaling->original_context);
  if (scaling->kind == Kind::longrope) {
    metadata.text(key + "type", "longrope");  // without it llama.cpp has no tables in llama's architecture
    return metadata.real(key + "attn_factor", scaling->table_factor());
  }
  metadata.text(key + "type", scaling->kind == Kind::linear ? "linear" : "yarn");
  metadata.real(key + "factor", scaling->factor);
  if (scaling->kind == Kind::linear) return;
  metadata.real(key + "yarn_beta_fast", scaling->beta_fast);
  metadata.real(key + "yarn_beta_slow", scaling->beta_slow);
  nn::RotaryScaling usual = *scaling;
  usual.attention_factor = 0;
  if (scaling->attention_factor != 0)
    metadata.real(key + "attn_factor", scaling->attention_factor / usual.table_factor());
}

void add_config(Metadata& metadata, const Architecture& architecture, const ModelConfig& c) {
  const std::string prefix = std::string(architecture.name) + ".";
  const bool gpt2 = architecture.family == Family::gpt2;
  const auto number = [&](const char* key, std::int64_t value) { metadata.number(prefix + key, value); };
  number("context_length", c.context);
  number("embedding_length", c.width);
  number("block_count", c.layers);
  number("feed_forward_length", c.dim_of_mlp());
  number("attention.head_count", c.heads);
  number("attention.head_count_kv", c.key_value_heads());
  metadata.real(prefix + (gpt2 ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon"), c.norm_eps);
  if (gpt2) return;
  number("attention.key_length", c.dim_of_head());
  number("attention.value_length", c.dim_of_head());
  number("vocab_size", c.vocab_size);
  add_layers(metadata, prefix, architecture.family, c);
  if (architecture.family == Family::gemma2)  // without the key 50 and 30 are meant
    metadata.real(prefix + "attn_logit_softcapping", c.attention_softcap);
  if (is_gemma(architecture.family)) metadata.real(prefix + "final_logit_softcapping", c.final_softcap);
}

/// Returns the factors of rotary frequencies as tensors, by name.
std::vector<std::pair<std::string, Tensor>> tables_of(const ModelConfig& c) {
  const LayerConfig layer = in_common(c).first;
  if (!layer.rotary_scaling) return {};
  const nn::RotaryScaling& scaling = *layer.rotary_scaling;
  if (scaling.kind == nn::RotaryScaling::Kind::llama3)
    return {{factor_tables[0], factors_of(scaling, c.rotated_dim(), layer.rotary_theta)}};
  if (scaling.kind != nn::RotaryScaling::Kind::longrope) return {};
  const auto table = [](const std::vector<double>& factors) { return tensor<double>(factors).to(Dtype::f32); };
  return {{factor_tables[1], table(scaling.short_factors)}, {factor_tables[2], table(scaling.long_factors)}};
}

/// Returns the rows of a tensor in the order of the file, in f32.
Tensor rows_of(const std::map<std::string, Tensor>& parameters, const Stored& stored) {
  Tensor rows = parameters.at(stored.parameter).narrow(0, stored.row, stored.rows).detach().to(Dtype::f32).contiguous();
  if (stored.added != 0) rows = rows + stored.added;
  if (stored.head_rows == 0) return rows;
  const std::int64_t heads = rows.size(0) / stored.head_rows, inner = rows.numel() / rows.size(0);
  return rows.reshape({heads, 2, stored.head_rows / 2, inner}).transpose(1, 2).reshape(rows.sizes()).contiguous();
}

/// Returns the notes with the tokens that the tokenizer itself puts before a text, or in place of unknown characters.
Notes with_tokens_of(const Tokenizer* tokenizer, Notes notes) {
  if (tokenizer == nullptr) return notes;
  const Tokenizer::State& state = state_of(*tokenizer);
  if (const auto before = state.before(); !before.empty()) notes.tokens[Notes::begin] = before[0];
  // a reader would use the id of this key for unknown characters
  if (state.byte_fallback) notes.tokens[Notes::unknown] = state.ids.find(state.unknown);
  return notes;
}

/// Adds the tokens that end a text: first that which the tokenizer adds after one, or `named` by its files.
void add_ends_of_texts(Metadata& metadata, const ModelConfig& config, const Tokenizer* tokenizer,
                       std::optional<std::int64_t> named) {
  std::vector<std::int64_t> ends = config.end_tokens;
  const std::vector<std::int64_t> after = tokenizer ? state_of(*tokenizer).after() : std::vector<std::int64_t>();
  // Without this key a program takes a default token, as llama.cpp does.
  if (ends.empty() && named) ends = {*named};
  const auto first = std::find(ends.begin(), ends.end(), !after.empty() ? after[0] : named.value_or(-1));
  if (first != ends.end()) std::rotate(ends.begin(), first, first + 1);
  else if (!after.empty())
    throw ValueError("convert: the tokenizer adds another token after a text than the one that ends it");
  if (ends.size() > std::size(end_keys))
    refuse(runtime::format("has {} tokens that end a text; a GGUF file has room for {}", ends.size(),
                           std::size(end_keys)));
  for (std::size_t i = 0; i < ends.size(); ++i) metadata.number(end_keys[i], ends[i]);
}

}  // namespace

void write(const std::string& path, const LanguageModel& given, const Tokenizer* tokenizer, const std::string& type,
           const Notes& notes) {
  const LanguageModel model = given.decoded();
  const ModelConfig& config = model.config;
  const Architecture& architecture = architecture_of(config);
  Metadata metadata = metadata_of(architecture.name, type);
  add_config(metadata, architecture, config);
  if (tokenizer != nullptr) add_tokenizer(metadata, *tokenizer, config.vocab_size);
  add_notes(metadata, with_tokens_of(tokenizer, notes));
  add_ends_of_texts(metadata, config, tokenizer, notes.tokens[Notes::end]);
  const nn::StateDict state = model.state_dict();
  const std::map<std::string, Tensor> parameters(state.begin(), state.end());
  std::vector<Written> tensors;
  for (const auto& [name, table] : tables_of(config)) tensors.push_back(written(name, table, type_of("F32")));
  const std::vector<Stored> all = stored_tensors(architecture, config);
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::vector<Tensor> parts = {rows_of(parameters, all[i])};
    for (; i + 1 < all.size() && all[i + 1].name == all[i].name; ++i) parts.push_back(rows_of(parameters, all[i + 1]));
    tensors.push_back(written(all[i].name, parts.size() > 1 ? cat(parts) : parts[0], type_of(type)));
  }
  write_file(path, metadata, tensors);
}

}  // namespace attn::gguf
