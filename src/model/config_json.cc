// src/model/config_json.cc: a model's shape as config.json, in the words of transformers' GPT-2 and Llama or in our own.
#include <attn/model.h>

#include "model/family.h"
#include "model/json_fields.h"

#include <algorithm>
#include <array>

namespace attn {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<const char*, 2> norm_names = {"layer_norm", "rms_norm"};
constexpr std::array<const char*, 2> position_names = {"learned", "rotary"};
constexpr std::array<const char*, 3> activation_names = {"gelu", "gelu_tanh", "swiglu"};

template <typename Enum, std::size_t N>
Enum named(const JsonFields& fields, const char* field, const std::array<const char*, N>& names) {
  const std::string text = fields.text(field);
  for (std::size_t i = 0; i < N; ++i)
    if (text == names[i]) return static_cast<Enum>(i);
  std::string all;
  for (const char* name : names) all += (all.empty() ? "" : ", ") + std::string(name);
  fields.refuse(field, "it must be one of " + all);
}

template <typename Enum, std::size_t N>
const char* name_in(const std::array<const char*, N>& names, Enum value) {
  return names[static_cast<std::size_t>(value)];
}

/// A null that stands there is false, as transformers takes it.
void must_be(const JsonFields& fields, const char* field, bool value) {
  if (fields.boolean(field, fields.has(field) ? false : value) != value) fields.refuse(field, "attn's models have it " + std::string(value ? "true" : "false"));
}

/// A size of GPT-2's, which transformers also reads under the name it has elsewhere, and then from there.
std::int64_t size_of(const JsonFields& fields, const char* field, const char* elsewhere) {
  if (!fields.has(elsewhere)) return fields.integer(field);
  const std::int64_t size = fields.integer(elsewhere);
  if (fields.has(field) && fields.integer(field) != size) fields.refuse(elsewhere, std::string(field) + " says " + std::to_string(fields.integer(field)));
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
  if (activation == "gelu")
    config.activation = ModelConfig::Activation::gelu;
  else if (activation != "gelu_new" && activation != "gelu_pytorch_tanh")
    fields.refuse("activation_function", "it must be gelu_new, gelu_pytorch_tanh or gelu");
  return config;
}

/// Rotary positions of transformers 5 ("rope_parameters") or before ("rope_theta" and "rope_scaling").
void read_rotary(const JsonFields& fields, ModelConfig& config) {
  config.rotary_theta = fields.number("rope_theta", 10000);
  std::optional<JsonFields> parameters = fields.object("rope_scaling");  // transformers 5 follows it, too, where both stand there
  if (!parameters || parameters->empty()) parameters = fields.object("rope_parameters");
  for (const JsonFields* given : {&fields, parameters ? &*parameters : &fields})
    if (given->number("partial_rotary_factor", 1) != 1) given->refuse("partial_rotary_factor", "attn's models turn whole heads: it must be 1");
  if (!parameters) return;
  config.rotary_theta = parameters->number("rope_theta", config.rotary_theta);
  const char* kind = parameters->at("rope_type").is_null() ? "type" : "rope_type";
  const std::string type = parameters->text(kind, "default");
  if (type == "default") return;
  if (type != "llama3") parameters->refuse(kind, "it must be default or llama3");
  constexpr const char* context = "original_max_position_embeddings";
  config.rotary_scaling = {parameters->number("factor"), parameters->number("low_freq_factor"), parameters->number("high_freq_factor"), parameters->integer(context)};
  // Which of two counts depends on the version of transformers.
  if (fields.has(context) && fields.integer(context) != config.rotary_scaling->original_context)
    fields.refuse(context, "it must be that of the rotary parameters, " + std::to_string(config.rotary_scaling->original_context));
}

ModelConfig read_llama(const JsonFields& fields) {
  if (const std::string activation = fields.text("hidden_act", "silu"); activation != "silu") fields.refuse("hidden_act", "it must be silu");
  must_be(fields, "is_causal", true);
  ModelConfig config{.vocab_size = fields.integer("vocab_size"),
                     .context = fields.integer("max_position_embeddings", 2048),
                     .layers = fields.integer("num_hidden_layers"),
                     .heads = fields.integer("num_attention_heads"),
                     .kv_heads = fields.integer("num_key_value_heads", 0),
                     .width = fields.integer("hidden_size"),
                     .head_dim = fields.integer("head_dim", 0),
                     .mlp_width = fields.integer("intermediate_size"),
                     .norm = ModelConfig::Norm::rms_norm,
                     .norm_eps = fields.number("rms_norm_eps", 1e-6),
                     .positions = ModelConfig::Positions::rotary,
                     .activation = ModelConfig::Activation::swiglu,
                     .attention_bias = fields.boolean("attention_bias", false),
                     .mlp_bias = fields.boolean("mlp_bias", false),
                     .tied_head = fields.boolean("tie_word_embeddings", false),
                     .dropout = fields.number("attention_dropout", 0)};
  read_rotary(fields, config);
  // Where one is shorter than the context, transformers' cache forgets what is behind it; a Llama's has no use_sliding_window.
  const nlohmann::json& layers = fields.at("layer_types");
  const bool all_full = layers.is_array() && std::all_of(layers.begin(), layers.end(), [](const nlohmann::json& type) { return type == "full_attention"; });
  for (const char* field : {"sliding_window", "attention_chunk_size"})
    if (!all_full && fields.integer(field, config.context) < config.context)
      fields.refuse(field, "attn's models see all tokens before: it must be null, or no shorter than max_position_embeddings");
  return config;
}

ModelConfig read_own(const JsonFields& fields) {
  ModelConfig config{.vocab_size = fields.integer("vocab_size"),
                     .context = fields.integer("context"),
                     .layers = fields.integer("layers"),
                     .heads = fields.integer("heads"),
                     .kv_heads = fields.integer("kv_heads"),
                     .width = fields.integer("width"),
                     .head_dim = fields.integer("head_dim"),
                     .mlp_width = fields.integer("mlp_width"),
                     .norm = named<ModelConfig::Norm>(fields, "norm", norm_names),
                     .norm_eps = fields.number("norm_eps"),
                     .positions = named<ModelConfig::Positions>(fields, "positions", position_names),
                     .activation = named<ModelConfig::Activation>(fields, "activation", activation_names),
                     .attention_bias = fields.boolean("attention_bias"),
                     .mlp_bias = fields.boolean("mlp_bias"),
                     .tied_head = fields.boolean("tie_word_embeddings"),
                     .dropout = fields.number("dropout")};
  read_rotary(fields, config);
  return config;
}

Json rotary_json(const ModelConfig& config) {
  Json rotary = {{"rope_type", config.rotary_scaling ? "llama3" : "default"}, {"rope_theta", config.rotary_theta}};
  if (const auto& s = config.rotary_scaling)
    rotary.update(Json{{"factor", s->factor}, {"low_freq_factor", s->low_frequency}, {"high_freq_factor", s->high_frequency},
                       {"original_max_position_embeddings", s->original_context}});
  return rotary;
}

Json gpt2_json(const ModelConfig& c) {
  return {{"architectures", {"GPT2LMHeadModel"}}, {"model_type", "gpt2"}, {"vocab_size", c.vocab_size}, {"n_positions", c.context}, {"n_layer", c.layers},
          {"n_head", c.heads}, {"n_embd", c.width}, {"n_inner", c.dim_of_mlp()}, {"layer_norm_epsilon", c.norm_eps},
          {"activation_function", c.activation == ModelConfig::Activation::gelu ? "gelu" : "gelu_new"}, {"tie_word_embeddings", c.tied_head},
          {"resid_pdrop", c.dropout}, {"embd_pdrop", c.dropout}, {"attn_pdrop", c.dropout}};
}

Json llama_json(const ModelConfig& c) {
  return {{"architectures", {"LlamaForCausalLM"}}, {"model_type", "llama"}, {"vocab_size", c.vocab_size}, {"max_position_embeddings", c.context},
          {"num_hidden_layers", c.layers}, {"num_attention_heads", c.heads}, {"num_key_value_heads", c.key_value_heads()}, {"hidden_size", c.width},
          {"head_dim", c.dim_of_head()}, {"intermediate_size", c.dim_of_mlp()}, {"hidden_act", "silu"}, {"rms_norm_eps", c.norm_eps},
          {"attention_bias", c.attention_bias}, {"mlp_bias", c.mlp_bias}, {"tie_word_embeddings", c.tied_head}, {"attention_dropout", c.dropout},
          {"rope_parameters", rotary_json(c)}};
}

Json own_json(const ModelConfig& c) {
  return {{"model_type", "attn"}, {"vocab_size", c.vocab_size}, {"context", c.context}, {"layers", c.layers}, {"heads", c.heads},
          {"kv_heads", c.key_value_heads()}, {"width", c.width}, {"head_dim", c.dim_of_head()}, {"mlp_width", c.dim_of_mlp()},
          {"norm", name_in(norm_names, c.norm)}, {"norm_eps", c.norm_eps}, {"positions", name_in(position_names, c.positions)},
          {"rope_parameters", rotary_json(c)}, {"activation", name_in(activation_names, c.activation)}, {"attention_bias", c.attention_bias},
          {"mlp_bias", c.mlp_bias}, {"tie_word_embeddings", c.tied_head}, {"dropout", c.dropout}};
}

}  // namespace

Family family_of(const ModelConfig& c) {
  using Config = ModelConfig;
  const bool plain_heads = c.key_value_heads() == c.heads && c.heads * c.dim_of_head() == c.width;
  if (c.norm == Config::Norm::layer_norm && c.positions == Config::Positions::learned && c.activation != Config::Activation::swiglu && plain_heads &&
      c.attention_bias && c.mlp_bias)
    return Family::gpt2;
  if (c.norm == Config::Norm::rms_norm && c.positions == Config::Positions::rotary && c.activation == Config::Activation::swiglu) return Family::llama;
  return Family::attn;
}

ModelConfig ModelConfig::from_json(const std::string& text, const std::string& name) {
  const JsonFields fields(text, name);
  const std::string type = fields.text("model_type");
  if (type != "gpt2" && type != "llama" && type != "attn") fields.refuse("model_type", "it must be gpt2, llama or attn");
  if (!fields.at("quantization_config").is_null()) fields.refuse("quantization_config", "attn's models are not quantised: it must be null");
  ModelConfig config = type == "gpt2" ? read_gpt2(fields) : type == "llama" ? read_llama(fields) : read_own(fields);
  config.end_tokens = fields.ids("eos_token_id");
  try {
    config.check();
  } catch (const ValueError& error) {
    throw ValueError(name + ": " + error.what());
  }
  return config;
}

std::string ModelConfig::to_json(Dtype dtype) const {
  const Family family = family_of(*this);
  Json json = family == Family::gpt2 ? gpt2_json(*this) : family == Family::llama ? llama_json(*this) : own_json(*this);
  if (end_tokens.size() == 1)
    json["eos_token_id"] = end_tokens.front();
  else if (!end_tokens.empty())
    json["eos_token_id"] = end_tokens;
  json["torch_dtype"] = torch_name_of(dtype);
  return json.dump(2) + "\n";
}

}  // namespace attn
