// src/model/config_json.cc: reads and writes a model's shape as config.json, in the format of transformers (GPT-2,
// Llama and similar models) or in our own.
#include <attn/model.h>

#include "model/family.h"
#include "model/fields.h"
#include "model/json_fields.h"

#include <algorithm>
#include <array>

namespace attn {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<const char*, 2> norm_names = {"layer_norm", "rms_norm"};
constexpr std::array<const char*, 2> position_names = {"learned", "rotary"};
constexpr std::array<const char*, 3> activation_names = {"gelu", "gelu_tanh", "swiglu"};
constexpr const auto& names_of(ModelConfig::Norm) { return norm_names; }
constexpr const auto& names_of(ModelConfig::Positions) { return position_names; }
constexpr const auto& names_of(ModelConfig::Activation) { return activation_names; }
constexpr std::array<const char*, 6> family_names = {"gpt2", "llama", "mistral", "qwen2", "qwen3", "attn"};

template <typename Enum, std::size_t N>
Enum named(const JsonFields& fields, const char* field, const std::array<const char*, N>& names) {
  const std::string text = fields.text(field);
  for (std::size_t i = 0; i < N; ++i)
    if (text == names[i]) return static_cast<Enum>(i);
  std::string all;
  for (std::size_t i = 0; i < N; ++i) all += (i == 0 ? "" : i + 1 < N ? ", " : " or ") + std::string(names[i]);
  fields.refuse(field, "it must be " + all);
}

template <typename Enum, std::size_t N>
const char* name_in(const std::array<const char*, N>& names, Enum value) {
  return names[static_cast<std::size_t>(value)];
}

/// Throws unless the field has this value. A null field counts as false, and an absent field is accepted.
void must_be(const JsonFields& fields, const char* field, bool value) {
  if (fields.boolean(field, fields.has(field) ? false : value) != value)
    fields.refuse(field, "attn's models have it " + std::string(value ? "true" : "false"));
}

/// Reads a size of GPT-2. transformers also reads it under the field name `elsewhere`, which takes precedence.
std::int64_t size_of(const JsonFields& fields, const char* field, const char* elsewhere) {
  if (!fields.has(elsewhere)) return fields.integer(field);
  const std::int64_t size = fields.integer(elsewhere);
  if (fields.has(field) && fields.integer(field) != size)
    fields.refuse(elsewhere, std::string(field) + " says " + std::to_string(fields.integer(field)));
  return size;
}

ModelConfig read_gpt2(const JsonFields& fields) {
  must_be(fields, "scale_attn_weights", true);
  must_be(fields, "scale_attn_by_inverse_layer_idx", false);
  must_be(fields, "add_cross_attention", false);
  must_be(fields, "is_causal", true);
  ModelConfig config{.vocab_size = fields.integer("vocab_size"),
                     .context = size_of(fields, "n_positions", "max_position_embeddings"),
                     .layers = size_of(fields, "n_layer", "num_hidden_layers"),
                     .heads = size_of(fields, "n_head", "num_attention_heads"),
                     .width = size_of(fields, "n_embd", "hidden_size"),
                     .mlp_width = fields.integer("n_inner", 0),
                     .norm_eps = fields.number("layer_norm_epsilon", 1e-5),
                     .tied_head = fields.boolean("tie_word_embeddings", true),
                     .dropout = fields.number("resid_pdrop", 0.1)};
  const std::string activation = fields.text("activation_function", "gelu_new");
  const auto is_one_of = [&](std::initializer_list<const char*> names) {
    return std::find(names.begin(), names.end(), activation) != names.end();
  };
  if (is_one_of({"gelu", "gelu_python"})) config.activation = ModelConfig::Activation::gelu;
  else if (!is_one_of({"gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_accurate", "gelu_python_tanh"}))
    fields.refuse("activation_function", "it must be gelu_new, gelu_pytorch_tanh or gelu");
  return config;
}

/// Reads rotary positions as transformers 5 ("rope_parameters") or earlier versions ("rope_theta" and "rope_scaling")
/// write them.
void read_rotary(const JsonFields& fields, ModelConfig& config) {
  config.rotary_theta = fields.number("rope_theta", 10000);
  // transformers 5 prefers rope_scaling if a file has both fields
  std::optional<JsonFields> parameters = fields.object("rope_scaling");
  if (!parameters || parameters->empty()) parameters = fields.object("rope_parameters");
  for (const JsonFields* given : {&fields, parameters ? &*parameters : &fields})
    if (given->number("partial_rotary_factor", 1) != 1)
      given->refuse("partial_rotary_factor", "attn's models turn whole heads: it must be 1");
  if (!parameters) return;
  config.rotary_theta = parameters->number("rope_theta", config.rotary_theta);
  const char* kind = parameters->at("rope_type").is_null() ? "type" : "rope_type";
  const std::string type = parameters->text(kind, "default");
  if (type == "default" || (type == "linear" && parameters->number("factor", 0) == 1)) return;
  if (type != "llama3") parameters->refuse(kind, "it must be default or llama3");
  constexpr const char* context = "original_max_position_embeddings";
  config.rotary_scaling = {parameters->number("factor"), parameters->number("low_freq_factor"),
                           parameters->number("high_freq_factor"), parameters->integer(context)};
  // If both fields give this number, the version of transformers decides which one is used, so they must agree.
  if (fields.has(context) && fields.integer(context) != config.rotary_scaling->original_context)
    fields.refuse(context, "it must be that of the rotary parameters, " +
                               std::to_string(config.rotary_scaling->original_context));
}

/// The values that transformers uses for fields that a config.json of Llama or a similar model omits. 0 means that
/// there is none, or that it is derived from other sizes.
struct Defaults {
  std::int64_t context, kv_heads = 0, head_dim = 0, sliding_window = 0;
};

Defaults defaults_of(Family family) {
  switch (family) {
    case Family::mistral: return {.context = 131072, .kv_heads = 8, .sliding_window = 4096};
    case Family::qwen2: return {.context = 32768, .kv_heads = 32, .sliding_window = 4096};
    case Family::qwen3: return {.context = 32768, .kv_heads = 32, .head_dim = 128, .sliding_window = 4096};
    default: return {.context = 2048};
  }
}

bool is_qwen(Family family) { return family == Family::qwen2 || family == Family::qwen3; }

/// Returns the field's number: 0 if it is null, `missing` if it is absent.
std::int64_t or_none(const JsonFields& fields, const char* field, std::int64_t missing) {
  return fields.has(field) ? fields.integer(field, 0) : missing;
}

/// Refuses a window shorter than the context: transformers' cache would drop tokens outside it, although without a
/// cache the layers see them.
void refuse_windows(const JsonFields& fields, std::int64_t context) {
  const nlohmann::json& types = fields.at("layer_types");
  if (types.is_array() &&
      std::all_of(types.begin(), types.end(), [](const nlohmann::json& type) { return type == "full_attention"; }))
    return;
  for (const char* field : {"sliding_window", "attention_chunk_size"})
    if (fields.integer(field, context) < context)
      fields.refuse(field,
                    "the model sees all tokens before: it must be null, or no shorter than max_position_embeddings");
}

/// Returns the sliding window that all layers share. transformers can set it for each layer; windows that differ are
/// refused.
std::int64_t read_window(const JsonFields& fields, Family family, const ModelConfig& config) {
  const bool qwen = is_qwen(family), used = !qwen || fields.boolean("use_sliding_window", false);
  const std::int64_t window = used ? or_none(fields, "sliding_window", defaults_of(family).sliding_window) : 0;
  if (used && window < 1 && !fields.at("sliding_window").is_null())
    fields.refuse("sliding_window", "it must be null, or at least 1");

  const nlohmann::json& types = fields.at("layer_types");
  const std::int64_t first = qwen ? fields.integer("max_window_layers", 28) : 0;
  bool full = first > 0, sliding = first < config.layers;
  if (!types.is_null()) {
    const auto count = [&](const char* type) {
      return types.is_array() ? std::count(types.begin(), types.end(), type) : 0;
    };
    full = count("full_attention") > 0, sliding = count("sliding_attention") > 0;
    if (static_cast<std::int64_t>(types.size()) != config.layers ||
        count("full_attention") + count("sliding_attention") != config.layers)
      fields.refuse("layer_types", "it must name full_attention or sliding_attention for each of num_hidden_layers, " +
                                       std::to_string(config.layers));
    if (sliding && window == 0)
      fields.refuse("layer_types",
                    std::string("sliding_attention needs a sliding_window") + (qwen ? ", and use_sliding_window" : ""));
  }
  if (full && sliding && window > 0 && window < config.context) {
    if (types.is_null())
      fields.refuse("max_window_layers",
                    "attn's layers have one window: it must be 0, or no less than num_hidden_layers");
    fields.refuse("layer_types", "attn's layers have one window: all must be full_attention, or all sliding_attention");
  }
  return sliding || !qwen ? window : 0;  // Mistral applies sliding_window whatever layer_types says
}

ModelConfig read_llama(const JsonFields& fields, Family family) {
  const bool llama = family == Family::llama;
  const Defaults defaults = defaults_of(family);
  if (const std::string activation = fields.text("hidden_act", "silu"); activation != "silu" && activation != "swish")
    fields.refuse("hidden_act", "it must be silu");
  must_be(fields, "is_causal", true);
  ModelConfig config{.vocab_size = fields.integer("vocab_size"),
                     .context = fields.integer("max_position_embeddings", defaults.context),
                     .layers = fields.integer("num_hidden_layers"),
                     .heads = fields.integer("num_attention_heads"),
                     .kv_heads = or_none(fields, "num_key_value_heads", defaults.kv_heads),
                     .width = fields.integer("hidden_size"),
                     .head_dim = or_none(fields, "head_dim", defaults.head_dim),
                     .mlp_width = fields.integer("intermediate_size"),
                     .norm = ModelConfig::Norm::rms_norm,
                     .norm_eps = fields.number("rms_norm_eps", 1e-6),
                     .positions = ModelConfig::Positions::rotary,
                     .activation = ModelConfig::Activation::swiglu,
                     .attention_bias = family == Family::qwen2 ||
                                       (family != Family::mistral && fields.boolean("attention_bias", false)),
                     .qk_norm = family == Family::qwen3,
                     .mlp_bias = llama && fields.boolean("mlp_bias", false),
                     .tied_head = fields.boolean("tie_word_embeddings", false),
                     .dropout = fields.number("attention_dropout", 0)};
  if (family == Family::qwen2) config.attention_out_bias = false;
  read_rotary(fields, config);
  if (!llama) config.sliding_window = read_window(fields, family, config);
  if (llama || (family == Family::mistral && config.sliding_window == 0)) refuse_windows(fields, config.context);
  return config;
}

/// Returns the name of a field in our own config.json; null for a field that is written as transformers writes it.
const char* own_name(std::string_view field) {
  if (field == "rotary_theta" || field == "rotary_scaling" || field == "end_tokens") return nullptr;
  return field == "tied_head" ? "tie_word_embeddings" : field.data();
}

/// Reads the fields of our own config.json. Fields that older files lack are optional.
struct OwnReader {
  const JsonFields& fields;
  void operator()(const char* name, std::int64_t& value) const {
    value = fields.integer(name, later(name) ? std::optional(value) : std::nullopt);
  }
  void operator()(const char* name, double& value) const {
    if (own_name(name)) value = fields.number(name);
  }
  void operator()(const char* name, bool& value) const {
    value = fields.boolean(own_name(name), later(name) ? std::optional(value) : std::nullopt);
  }
  void operator()(const char* name, std::optional<bool>& value) const {
    if (!fields.at(name).is_null()) value = fields.boolean(name);
  }
  void operator()(const char*, std::optional<nn::RotaryScaling>&) const {}
  void operator()(const char*, std::vector<std::int64_t>&) const {}
  template <typename Enum>
    requires std::is_enum_v<Enum>
  void operator()(const char* name, Enum& value) const {
    value = named<Enum>(fields, name, names_of(value));
  }
  static bool later(std::string_view name) { return name == "qk_norm" || name == "sliding_window"; }
};

ModelConfig read_own(const JsonFields& fields) {
  ModelConfig config;
  each_field(config, OwnReader{fields});
  read_rotary(fields, config);
  return config;
}

Json rotary_json(const ModelConfig& config) {
  Json rotary = {{"rope_type", config.rotary_scaling ? "llama3" : "default"}, {"rope_theta", config.rotary_theta}};
  if (const auto& s = config.rotary_scaling)
    rotary.update(Json{{"factor", s->factor},
                       {"low_freq_factor", s->low_frequency},
                       {"high_freq_factor", s->high_frequency},
                       {"original_max_position_embeddings", s->original_context}});
  return rotary;
}

Json gpt2_json(const ModelConfig& c) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"vocab_size", c.vocab_size},
          {"n_positions", c.context},
          {"n_layer", c.layers},
          {"n_head", c.heads},
          {"n_embd", c.width},
          {"n_inner", c.dim_of_mlp()},
          {"layer_norm_epsilon", c.norm_eps},
          {"activation_function", c.activation == ModelConfig::Activation::gelu ? "gelu" : "gelu_new"},
          {"tie_word_embeddings", c.tied_head},
          {"resid_pdrop", c.dropout},
          {"embd_pdrop", c.dropout},
          {"attn_pdrop", c.dropout}};
}

Json llama_json(const ModelConfig& c, Family family) {
  constexpr std::array<const char*, 5> classes = {"", "LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM",
                                                  "Qwen3ForCausalLM"};
  Json json = {{"architectures", {name_in(classes, family)}},
               {"model_type", name_in(family_names, family)},
               {"vocab_size", c.vocab_size},
               {"max_position_embeddings", c.context},
               {"num_hidden_layers", c.layers},
               {"num_attention_heads", c.heads},
               {"num_key_value_heads", c.key_value_heads()},
               {"hidden_size", c.width},
               {"head_dim", c.dim_of_head()},
               {"intermediate_size", c.dim_of_mlp()},
               {"hidden_act", "silu"},
               {"rms_norm_eps", c.norm_eps},
               {"tie_word_embeddings", c.tied_head},
               {"attention_dropout", c.dropout},
               {"rope_parameters", rotary_json(c)}};
  const bool windows = c.sliding_window > 0;
  if (family == Family::llama || family == Family::qwen3) json["attention_bias"] = c.attention_bias;
  if (family == Family::llama) json["mlp_bias"] = c.mlp_bias;
  if (family != Family::llama) json["sliding_window"] = windows ? Json(c.sliding_window) : Json();
  if (is_qwen(family))
    json.update(Json{{"use_sliding_window", windows}, {"max_window_layers", windows ? 0 : c.layers}});
  return json;
}

Json own_json(ModelConfig c) {
  c.kv_heads = c.key_value_heads(), c.head_dim = c.dim_of_head(), c.mlp_width = c.dim_of_mlp();
  Json json = {{"model_type", "attn"}};
  each_field(c, [&](const char* field, const auto& value) {
    using T = std::decay_t<decltype(value)>;
    const char* name = own_name(field);
    if (name == nullptr) return;
    if constexpr (std::is_enum_v<T>) json[name] = name_in(names_of(value), value);
    else if constexpr (std::is_same_v<T, std::optional<bool>>) {
      if (value) json[name] = *value;
    } else if constexpr (std::is_arithmetic_v<T>) json[name] = value;
  });
  json["rope_parameters"] = rotary_json(c);
  return json;
}

}  // namespace

Family family_of(const ModelConfig& c) {
  using Config = ModelConfig;
  const bool plain_heads = c.key_value_heads() == c.heads && c.heads * c.dim_of_head() == c.width,
             same_bias = c.attention_bias == c.bias_of_out();
  if (c.norm == Config::Norm::layer_norm && c.positions == Config::Positions::learned &&
      c.activation != Config::Activation::swiglu && plain_heads && c.attention_bias && same_bias && c.mlp_bias &&
      !c.qk_norm && c.sliding_window == 0)
    return Family::gpt2;
  if (c.norm != Config::Norm::rms_norm || c.positions != Config::Positions::rotary ||
      c.activation != Config::Activation::swiglu)
    return Family::attn;
  if (!c.qk_norm && c.sliding_window == 0 && same_bias) return Family::llama;
  if (c.mlp_bias) return Family::attn;
  if (c.qk_norm) return same_bias ? Family::qwen3 : Family::attn;
  if (!same_bias) return c.attention_bias ? Family::qwen2 : Family::attn;
  return c.attention_bias ? Family::attn : Family::mistral;
}

ModelConfig ModelConfig::from_json(const std::string& text, const std::string& name) {
  const JsonFields fields(text, name);
  const auto family = named<Family>(fields, "model_type", family_names);
  if (!fields.at("quantization_config").is_null())
    fields.refuse("quantization_config", "attn's models are not quantised: it must be null");
  ModelConfig config = family == Family::gpt2  ? read_gpt2(fields)
                       : is_llama_like(family) ? read_llama(fields, family)
                                               : read_own(fields);
  config.end_tokens = fields.ids("eos_token_id");
  try {
    config.check();
  } catch (const ValueError& error) { throw ValueError(name + ": " + error.what()); }
  return config;
}

std::string ModelConfig::to_json(Dtype dtype) const {
  check();
  const Family family = family_of(*this);
  Json json = family == Family::gpt2  ? gpt2_json(*this)
              : is_llama_like(family) ? llama_json(*this, family)
                                      : own_json(*this);
  if (end_tokens.size() == 1) json["eos_token_id"] = end_tokens.front();
  else if (!end_tokens.empty()) json["eos_token_id"] = end_tokens;
  json["torch_dtype"] = torch_name_of(dtype);
  return json.dump(2) + "\n";
}

}  // namespace attn
