// src/model/config_json.cc: reads and writes a model's shape as config.json: GPT-2's in the format of transformers, and
// our own format.
#include <attn/model.h>

#include "model/family.h"
#include "model/fields.h"
#include "model/json_fields.h"
#include "model/llama_json.h"
#include "model/rotary_json.h"

#include <algorithm>
#include <array>

namespace attn {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::array<const char*, 3> norm_names = {"layer_norm", "rms_norm", "rms_norm_plus_one"};
constexpr std::array<const char*, 2> position_names = {"learned", "rotary"};
constexpr std::array<const char*, 4> activation_names = {"gelu", "gelu_tanh", "swiglu", "geglu_tanh"};
constexpr const auto& names_of(ModelConfig::Norm) { return norm_names; }
constexpr const auto& names_of(ModelConfig::Positions) { return position_names; }
constexpr const auto& names_of(ModelConfig::Activation) { return activation_names; }

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

/// Reads a size of GPT-2. transformers also reads it under the field name `elsewhere`, which takes precedence.
std::int64_t size_of(const JsonFields& fields, const char* field, const char* elsewhere) {
  if (!fields.has(elsewhere)) return fields.integer(field);
  const std::int64_t size = fields.integer(elsewhere);
  if (fields.has(field) && fields.integer(field) != size)
    fields.refuse(elsewhere, std::string(field) + " says " + std::to_string(fields.integer(field)));
  return size;
}

ModelConfig read_gpt2(const JsonFields& fields) {
  fields.must_be("scale_attn_weights", true);
  fields.must_be("scale_attn_by_inverse_layer_idx", false);
  fields.must_be("add_cross_attention", false);
  fields.must_be("is_causal", true);
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

/// Returns the name of a field in our own config.json; null for a field that is written as transformers writes it.
const char* own_name(std::string_view field) {
  if (field == "rotary_theta" || field == "rotary_scaling" || field == "end_tokens") return nullptr;
  return field == "tied_head" ? "tie_word_embeddings" : field.data();
}

/// Reads the rotary embedding of our own model or one of its layers: values in `parameters` override those in `fields`.
RotaryFields own_rotary(const JsonFields& fields, const std::optional<JsonFields>& parameters, std::int64_t context) {
  return read_rotary(fields, parameters, fields.number("rope_theta", 10000), context, Family::attn);
}

OrderedJson own_rotary_json(double theta, const std::optional<nn::RotaryScaling>& scaling, std::int64_t context) {
  OrderedJson json = rotary_json(theta, scaling, context);
  if (scaling && scaling->kind == nn::RotaryScaling::Kind::dynamic)
    json["original_max_position_embeddings"] = scaling->original_context;
  return json;
}

/// Reads the fields of our own config.json. Fields that older files lack are optional.
struct OwnReader {
  const JsonFields& fields;
  void operator()(const char* name, std::int64_t& value) const { value = fields.integer(name, later(name, value)); }
  void operator()(const char* name, double& value) const {
    if (own_name(name)) value = fields.number(name, later(name, value));
  }
  void operator()(const char* name, bool& value) const { value = fields.boolean(own_name(name), later(name, value)); }
  void operator()(const char* name, std::optional<bool>& value) const {
    if (!fields.at(name).is_null()) value = fields.boolean(name);
  }
  void operator()(const char* name, std::vector<LayerConfig>& value) const {
    for (const JsonFields& layer : fields.objects(name)) {
      LayerConfig& one = value.emplace_back();
      one.sliding_window = layer.integer("sliding_window");
      one.rotary = layer.boolean("rotary");
      const RotaryFields rotary = own_rotary(layer, layer.object("rope_parameters"), fields.integer("context"));
      one.rotary_theta = rotary.theta, one.rotary_scaling = rotary.scaling;
    }
  }
  void operator()(const char*, std::optional<nn::RotaryScaling>&) const {}
  void operator()(const char*, std::vector<std::int64_t>&) const {}
  template <typename Enum>
    requires std::is_enum_v<Enum>
  void operator()(const char* name, Enum& value) const {
    value = named<Enum>(fields, name, names_of(value));
  }
  template <typename T>
  static std::optional<T> later(std::string_view name, T value) {
    for (const std::string_view one : {"qk_norm", "sliding_window", "rotary_dim", "query_scalar", "attention_softcap",
                                       "post_norms", "scaled_embedding", "final_softcap"})
      if (name == one) return value;
    return std::nullopt;
  }
};

ModelConfig read_own(const JsonFields& fields) {
  ModelConfig config;
  each_field(config, OwnReader{fields});
  const RotaryFields rotary = own_rotary(fields, rotary_parameters(fields), config.context);
  config.rotary_theta = rotary.theta, config.rotary_scaling = rotary.scaling;
  return config;
}

OrderedJson gpt2_json(const ModelConfig& c) {
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

OrderedJson own_json(ModelConfig c) {
  c.kv_heads = c.key_value_heads(), c.head_dim = c.dim_of_head(), c.mlp_width = c.dim_of_mlp();
  OrderedJson json = {{"model_type", "attn"}};
  each_field(c, [&](const char* field, const auto& value) {
    using T = std::decay_t<decltype(value)>;
    const char* name = own_name(field);
    if (name == nullptr) return;
    if constexpr (std::is_enum_v<T>) json[name] = name_in(names_of(value), value);
    else if constexpr (std::is_same_v<T, std::optional<bool>>) {
      if (value) json[name] = *value;
    } else if constexpr (std::is_same_v<T, std::vector<LayerConfig>>) {
      for (const LayerConfig& layer : value)
        json[name].push_back(
            {{"sliding_window", layer.sliding_window},
             {"rotary", layer.rotary},
             {"rope_parameters", own_rotary_json(layer.rotary_theta, layer.rotary_scaling, c.context)}});
    } else if constexpr (std::is_arithmetic_v<T>) json[name] = value;
  });
  json["rope_parameters"] = own_rotary_json(c.rotary_theta, c.rotary_scaling, c.context);
  return json;
}

}  // namespace

Family family_in(const std::string& json, const std::string& name) {
  return named<Family>(JsonFields(json, name), "model_type", family_names);
}

ModelConfig ModelConfig::from_json(const std::string& text, const std::string& name) {
  const JsonFields fields(text, name);
  for (const char* experts : {"num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"})
    if (!fields.at(experts).is_null() && fields.at(experts) != 0)
      fields.refuse(experts, "attn reads no mixtures of experts");
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
  OrderedJson json = family == Family::gpt2  ? gpt2_json(*this)
                     : is_llama_like(family) ? llama_json(*this, family)
                                             : own_json(*this);
  if (end_tokens.size() == 1) json["eos_token_id"] = end_tokens.front();
  else if (!end_tokens.empty()) json["eos_token_id"] = end_tokens;
  json["torch_dtype"] = torch_name_of(dtype);
  return json.dump(2) + "\n";
}

}  // namespace attn
