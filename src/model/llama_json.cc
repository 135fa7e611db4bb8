// src/model/llama_json.cc: reads and writes config.json of Llama, Mistral, Qwen, Gemma, Phi-3 and SmolLM 3, as
// transformers has it.
#include "model/llama_json.h"
#include "model/rotary_json.h"

#include <algorithm>
#include <cmath>

namespace attn {
namespace {

using OrderedJson = nlohmann::ordered_json;
using Config = ModelConfig;
using Kind = nn::RotaryScaling::Kind;

constexpr const char* full_name = "full_attention";
constexpr const char* sliding_name = "sliding_attention";

/// The values that transformers uses for fields that a config.json of a family omits. 0 means that there is none, or
/// that it is derived from other sizes.
struct Defaults {
  std::int64_t context = 2048, kv_heads = 0, head_dim = 0, sliding_window = 0;
  double norm_eps = 1e-6, theta = 10000;
  bool tied_head = false;
};

Defaults defaults_of(Family family) {
  switch (family) {
    case Family::mistral: return {.context = 131072, .kv_heads = 8, .sliding_window = 4096};
    case Family::qwen2: return {.context = 32768, .kv_heads = 32, .sliding_window = 4096};
    case Family::qwen3: return {.context = 32768, .kv_heads = 32, .head_dim = 128, .sliding_window = 4096};
    case Family::gemma2:
      return {.context = 8192, .kv_heads = 4, .head_dim = 256, .sliding_window = 4096, .tied_head = true};
    case Family::gemma3:
      return {
          .context = 131072, .kv_heads = 4, .head_dim = 256, .sliding_window = 4096, .theta = 1e6, .tied_head = true};
    case Family::phi3: return {.context = 4096, .norm_eps = 1e-5};
    case Family::smollm3: return {.context = 32768, .kv_heads = 4, .theta = 2e6, .tied_head = true};
    default: return {};
  }
}

/// Returns whether the family's layers have a window only if use_sliding_window says so.
bool has_switch(Family family) { return is_qwen(family) || family == Family::smollm3; }

/// Returns the field's number: 0 if it is null, `missing` if it is absent.
std::int64_t or_none(const JsonFields& fields, const char* field, std::int64_t missing) {
  return fields.has(field) ? fields.integer(field, 0) : missing;
}

/// Refuses a window shorter than the context: transformers' cache would drop tokens outside it, although without a
/// cache the layers see them.
void refuse_windows(const JsonFields& fields, std::int64_t context) {
  const nlohmann::json& types = fields.at("layer_types");
  if (types.is_array() &&
      std::all_of(types.begin(), types.end(), [](const nlohmann::json& type) { return type == full_name; }))
    return;
  for (const char* field : {"sliding_window", "attention_chunk_size"})
    if (fields.integer(field, context) < context)
      fields.refuse(field,
                    "the model sees all tokens before: it must be null, or no shorter than max_position_embeddings");
}

/// Returns which layers rotate: all, or those of SmolLM 3's no_rope_layers that are 1.
std::vector<bool> read_rotates(const JsonFields& fields, Family family, std::int64_t layers) {
  std::vector<bool> rotates(static_cast<std::size_t>(layers), true);
  if (family != Family::smollm3) return rotates;
  const nlohmann::json& list = fields.at("no_rope_layers");
  const std::int64_t interval = fields.integer("no_rope_layer_interval", 4);
  if (interval < 1) fields.refuse("no_rope_layer_interval", "it must be at least 1");
  if (!list.is_null() && (!list.is_array() || static_cast<std::int64_t>(list.size()) < layers ||
                          !std::all_of(list.begin(), list.end(), [](const auto& x) { return x == 0 || x == 1; })))
    fields.refuse("no_rope_layers", "it must say 0 or 1 for each of num_hidden_layers, " + std::to_string(layers));
  for (std::size_t n = 0; n < rotates.size(); ++n)
    rotates[n] = list.is_null() ? (static_cast<std::int64_t>(n) + 1) % interval != 0 : list[n] == 1;
  return rotates;
}

/// Returns which layers have a window, as the family does it if layer_types does not say.
std::vector<bool> usual_windows(const JsonFields& fields, Family family, const std::vector<bool>& rotates) {
  std::vector<bool> sliding(rotates.size(), true);
  const std::int64_t first = is_qwen(family) ? fields.integer("max_window_layers", 28) : 0,
                     pattern = family == Family::gemma3 ? fields.integer("sliding_window_pattern", 6) : 2;
  if (pattern < 1) fields.refuse("sliding_window_pattern", "it must be at least 1");
  for (std::size_t n = 0; n < sliding.size(); ++n) {
    const auto at = static_cast<std::int64_t>(n);
    sliding[n] = family == Family::smollm3 ? !rotates[n] : is_gemma(family) ? (at + 1) % pattern != 0 : at >= first;
  }
  return sliding;
}

/// Returns which layers have a window.
std::vector<bool> read_windows(const JsonFields& fields, Family family, const std::vector<bool>& rotates,
                               std::int64_t window) {
  const nlohmann::json& types = fields.at("layer_types");
  if (types.is_null() || family == Family::phi3) return usual_windows(fields, family, rotates);
  const auto layers = static_cast<std::int64_t>(rotates.size());
  const auto count = [&](const char* type) {
    return types.is_array() ? std::count(types.begin(), types.end(), type) : 0;
  };
  if (static_cast<std::int64_t>(types.size()) != layers || count(full_name) + count(sliding_name) != layers)
    fields.refuse("layer_types", "it must name full_attention or sliding_attention for each of num_hidden_layers, " +
                                     std::to_string(layers));
  if (count(sliding_name) > 0 && window == 0)
    fields.refuse("layer_types", std::string("sliding_attention needs a sliding_window") +
                                     (has_switch(family) ? ", and use_sliding_window" : ""));
  std::vector<bool> sliding;
  for (const auto& type : types) sliding.push_back(type == sliding_name);
  return sliding;
}

/// Reads what differs from layer to layer: windows, and rotary embedding.
void read_layers(const JsonFields& fields, Family family, const Defaults& defaults, Config& config) {
  // before lists are made: a damaged file may claim more layers than fit into memory
  if (config.layers < 1 || config.layers > 1 << 20)
    fields.refuse("num_hidden_layers", "it must be from 1 to " + std::to_string(1 << 20));
  const bool used = family != Family::llama && (!has_switch(family) || fields.boolean("use_sliding_window", false));
  const std::int64_t window = used ? or_none(fields, "sliding_window", defaults.sliding_window) : 0;
  if (used && window < 1 && !fields.at("sliding_window").is_null())
    fields.refuse("sliding_window", "it must be null, or at least 1");
  const std::vector<bool> rotates = read_rotates(fields, family, config.layers);
  std::vector<bool> sliding(rotates.size(), false);
  if (family != Family::llama) sliding = read_windows(fields, family, rotates, window);
  if (is_gemma(family) && window == 0 && std::count(sliding.begin(), sliding.end(), true) > 0)
    fields.refuse("sliding_window", "sliding_attention needs one");

  std::optional<JsonFields> parameters = rotary_parameters(fields);
  double theta = fields.number("rope_theta", defaults.theta);
  RotaryFields local;
  if (family == Family::gemma3) {  // layers with a window have parameters of their own
    const std::optional<JsonFields> each = fields.object("rope_parameters"), scaling = fields.object("rope_scaling");
    parameters = each ? each->object(full_name) : std::nullopt;
    if (parameters) theta = parameters->number("rope_theta", theta);
    if (scaling && !scaling->empty()) parameters = scaling;
    local = read_rotary(fields, each ? each->object(sliding_name) : std::nullopt,
                        fields.number("rope_local_base_freq", 10000), config.context, family);
  }
  const RotaryFields rotary = read_rotary(fields, parameters, theta, config.context, family);
  if (rotary.part != 1) {
    config.rotary_dim = static_cast<std::int64_t>(static_cast<double>(config.dim_of_head()) * rotary.part);
    if (config.rotary_dim < 2) fields.refuse("rope_parameters", "fewer than two elements of a head would be rotated");
  }

  // Mistral and Phi-3 apply sliding_window whatever layer_types says; Qwen's window has no effect if it is at least the
  // context, so all layers may have it.
  const bool in_all = family == Family::mistral || family == Family::phi3,
             some = !in_all && is_qwen(family) && window >= config.context &&
                    std::count(sliding.begin(), sliding.end(), true) > 0;
  std::vector<LayerConfig> layers;
  for (std::size_t n = 0; n < sliding.size(); ++n) {
    const RotaryFields& own = family == Family::gemma3 && sliding[n] ? local : rotary;
    LayerConfig layer{.sliding_window = in_all || some || sliding[n] ? window : 0, .rotary = rotates[n]};
    if (layer.rotary) layer.rotary_theta = own.theta, layer.rotary_scaling = own.scaling;
    layers.push_back(std::move(layer));
  }
  set_layers(config, layers);
  const auto stretch = [&](const std::optional<nn::RotaryScaling>& scaling) {
    if (scaling && scaling->kind == Kind::dynamic) config.context = dynamic_context(*scaling);
  };
  stretch(rotary.scaling), stretch(local.scaling);
}

/// Reads what only Gemma has.
void read_gemma(const JsonFields& fields, Family family, Config& config) {
  if (const char* field = "hidden_activation"; fields.text(field, "gelu_pytorch_tanh") != "gelu_pytorch_tanh")
    fields.refuse(field, "it must be gelu_pytorch_tanh");
  fields.must_be("use_bidirectional_attention", false);
  config.norm = Config::Norm::rms_norm_plus_one;
  config.activation = Config::Activation::geglu_tanh;
  config.post_norms = config.scaled_embedding = true;
  const bool gemma2 = family == Family::gemma2;
  const auto cap = [&](const char* field, double otherwise) {
    const double value = fields.has(field) ? fields.number(field, 0) : otherwise;
    if (value <= 0 && !fields.at(field).is_null()) fields.refuse(field, "it must be null, or above 0");
    return value;
  };
  config.final_softcap = cap("final_logit_softcapping", gemma2 ? 30 : 0);
  if (gemma2) config.attention_softcap = cap("attn_logit_softcapping", 50);  // transformers' Gemma 3 does not use it
  const double scalar = fields.number("query_pre_attn_scalar", 256);
  if (scalar <= 0) fields.refuse("query_pre_attn_scalar", "it must be above 0");
  if (scalar != static_cast<double>(config.dim_of_head())) config.query_scalar = scalar;
}

/// The names of the classes of transformers.
const char* class_of(Family family) {
  switch (family) {
    case Family::mistral: return "MistralForCausalLM";
    case Family::qwen2: return "Qwen2ForCausalLM";
    case Family::qwen3: return "Qwen3ForCausalLM";
    case Family::gemma2: return "Gemma2ForCausalLM";
    case Family::gemma3: return "Gemma3ForCausalLM";
    case Family::phi3: return "Phi3ForCausalLM";
    case Family::smollm3: return "SmolLM3ForCausalLM";
    default: return "LlamaForCausalLM";
  }
}

/// Returns the part of a head that is rotated: a number of which transformers computes rotary_dim again.
double rotated_part(const Config& c) {
  const auto dim = static_cast<double>(c.dim_of_head()), rotated = static_cast<double>(c.rotated_dim());
  const double part = rotated / dim;
  return std::floor(dim * part) < rotated ? std::nextafter(part, 2.0) : part;
}

OrderedJson cap_json(double cap) { return cap > 0 ? OrderedJson(cap) : OrderedJson(); }

/// Writes the windows and rotary embedding.
void add_layers(const Config& c, Family family, OrderedJson& json) {
  const LayersInCommon layers = in_common(c);
  const bool windows = layers.any_windowed;
  const auto parameters = [&](const LayerConfig& layer) {
    return rotary_json(layer.rotary_theta, layer.rotary_scaling, c.context);
  };
  if (family == Family::gemma3) {
    json["rope_parameters"] = {{full_name, parameters(layers.full.value_or(layers.first))},
                               {sliding_name, parameters(layers.windowed.value_or(layers.first))}};
  } else if (family == Family::phi3) {
    const auto& scaling = layers.first.rotary_scaling;
    json["rope_parameters"] = rotary_json(layers.first.rotary_theta, scaling, c.context);
    json["rope_parameters"]["partial_rotary_factor"] = rotated_part(c);
    if (scaling) json["original_max_position_embeddings"] = scaling->original_context;
  } else {
    json["rope_parameters"] = parameters(layers.first);
  }
  if (family != Family::llama) json["sliding_window"] = windows ? OrderedJson(layers.sliding_window) : OrderedJson();
  if (has_switch(family)) json["use_sliding_window"] = windows;
  if (is_qwen(family)) json["max_window_layers"] = windows && layers.all_windowed ? 0 : c.layers;
  if (is_gemma(family) || family == Family::smollm3 || (windows && !layers.all_windowed))
    for (std::int64_t n = 0; n < c.layers; ++n)
      json["layer_types"].push_back(c.layer(n).sliding_window > 0 ? sliding_name : full_name);
  if (family == Family::smollm3)
    for (std::int64_t n = 0; n < c.layers; ++n) json["no_rope_layers"].push_back(c.layer(n).rotary ? 1 : 0);
}

}  // namespace

Config read_llama(const JsonFields& fields, Family family) {
  const bool llama = family == Family::llama, biases = llama || family == Family::smollm3;
  const Defaults defaults = defaults_of(family);
  if (const std::string activation = fields.text("hidden_act", "silu");
      !is_gemma(family) && activation != "silu" && activation != "swish")
    fields.refuse("hidden_act", "it must be silu");
  fields.must_be("is_causal", true);
  const bool no_bias = family == Family::mistral || family == Family::phi3;
  Config config{.vocab_size = fields.integer("vocab_size"),
                .context = fields.integer("max_position_embeddings", defaults.context),
                .layers = fields.integer("num_hidden_layers"),
                .heads = fields.integer("num_attention_heads"),
                .kv_heads = or_none(fields, "num_key_value_heads", defaults.kv_heads),
                .width = fields.integer("hidden_size"),
                .head_dim = or_none(fields, "head_dim", defaults.head_dim),
                .mlp_width = fields.integer("intermediate_size"),
                .norm = Config::Norm::rms_norm,
                .norm_eps = fields.number("rms_norm_eps", defaults.norm_eps),
                .positions = Config::Positions::rotary,
                .activation = Config::Activation::swiglu,
                .attention_bias = family == Family::qwen2 || (!no_bias && fields.boolean("attention_bias", false)),
                .qk_norm = family == Family::qwen3 || family == Family::gemma3,
                .mlp_bias = biases && fields.boolean("mlp_bias", false),
                .tied_head = fields.boolean("tie_word_embeddings", defaults.tied_head),
                .dropout = fields.number("attention_dropout", 0)};
  if (family == Family::qwen2) config.attention_out_bias = false;
  if (is_gemma(family)) read_gemma(fields, family, config);
  read_layers(fields, family, defaults, config);
  if (llama || (family == Family::mistral && config.sliding_window == 0)) refuse_windows(fields, config.context);
  return config;
}

OrderedJson llama_json(const Config& c, Family family) {
  OrderedJson json = {
      {"architectures", {class_of(family)}},
      {"model_type", family_names[static_cast<std::size_t>(family)]},
      {"vocab_size", c.vocab_size},
      {"max_position_embeddings", c.context},
      {"num_hidden_layers", c.layers},
      {"num_attention_heads", c.heads},
      {"num_key_value_heads", c.key_value_heads()},
      {"hidden_size", c.width},
      {"head_dim", c.dim_of_head()},
      {"intermediate_size", c.dim_of_mlp()},
      {is_gemma(family) ? "hidden_activation" : "hidden_act", is_gemma(family) ? "gelu_pytorch_tanh" : "silu"},
      {"rms_norm_eps", c.norm_eps},
      {"tie_word_embeddings", c.tied_head},
      {"attention_dropout", c.dropout}};
  add_layers(c, family, json);
  for (std::int64_t n = 0; n < (c.per_layer.empty() ? 1 : c.layers); ++n)
    if (const auto scaling = c.layer(n).rotary_scaling; scaling && scaling->kind == Kind::dynamic)
      json["max_position_embeddings"] = scaling->original_context;
  const bool biases = family == Family::llama || family == Family::smollm3;
  if (biases || family == Family::qwen3 || is_gemma(family)) json["attention_bias"] = c.attention_bias;
  if (biases) json["mlp_bias"] = c.mlp_bias;
  if (!is_gemma(family)) return json;
  const double scalar = c.score_divisor();
  const bool whole = scalar == std::floor(scalar) && scalar < 0x1p53;
  json["query_pre_attn_scalar"] = whole ? OrderedJson(static_cast<std::int64_t>(scalar)) : OrderedJson(scalar);
  json["attn_logit_softcapping"] = cap_json(c.attention_softcap);
  json["final_logit_softcapping"] = cap_json(c.final_softcap);
  return json;
}

}  // namespace attn
