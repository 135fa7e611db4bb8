// src/model/encoder/config.cc: reads the shape of an encoder from transformers' config.json, and checks it.
#include <attn/encoder.h>

#include "model/encoder/activation.h"
#include "model/json_fields.h"

#include "runtime/format.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace attn {
namespace {

using Config = EncoderConfig;
using Family = Config::Family;
using Activation = Config::Activation;

// limits every size, so that the product of two fits in 64 bits
constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t most_layers = 1 << 20;

void check_size(const char* name, std::int64_t value, std::int64_t least = 1, std::int64_t largest = most) {
  if (value < least || value > largest)
    throw ValueError(runtime::format("EncoderConfig: {} is {}; it must be from {} to {}", name, value, least, largest));
}

void check_positive(const char* name, double value) {
  if (!(value > 0) || std::isinf(value))
    throw ValueError(runtime::format("EncoderConfig: {} is {}; it must be above 0, and finite", name, value));
}

/// Returns how many scores a model for sequence classification gives; 0 for another one.
std::int64_t read_labels(const JsonFields& fields) {
  const nlohmann::json& classes = fields.at("architectures");
  const bool classifies = classes.is_array() && std::any_of(classes.begin(), classes.end(), [](const auto& name) {
                            return name.is_string() && std::string(name).ends_with("ForSequenceClassification");
                          });
  if (!classifies) return 0;
  // transformers writes the names of the classes, and num_labels only if there are none
  const nlohmann::json& names = fields.at("id2label");
  return names.is_object() ? static_cast<std::int64_t>(names.size()) : fields.integer("num_labels", 2);
}

Config read_bert(const JsonFields& fields, Family family) {
  if (fields.text("position_embedding_type", "absolute") != "absolute")
    fields.refuse("position_embedding_type", "it must be absolute");
  fields.must_be("is_decoder", false);
  fields.must_be("add_cross_attention", false);
  Config config{.family = family,
                .vocab_size = fields.integer("vocab_size"),
                .positions = fields.integer("max_position_embeddings", 512),
                .layers = fields.integer("num_hidden_layers"),
                .heads = fields.integer("num_attention_heads"),
                .width = fields.integer("hidden_size"),
                .mlp_width = fields.integer("intermediate_size"),
                .segments = fields.integer("type_vocab_size", 2),
                .padding_id = fields.integer("pad_token_id", family == Family::bert ? 0 : 1),
                .activation = read_activation(fields, "hidden_act"),
                .norm_eps = fields.number("layer_norm_eps", 1e-12)};
  if (family != Family::mpnet) return config;
  config.segments = 0;
  config.padding_id = 1;  // transformers counts MPNet's positions from 2, and uses 32 buckets, whatever the file says
  config.relative_buckets = fields.integer("relative_attention_num_buckets", 32);
  if (config.relative_buckets != 32) fields.refuse("relative_attention_num_buckets", "it must be 32");
  return config;
}

Config read_distilbert(const JsonFields& fields) {
  fields.must_be("sinusoidal_pos_embds", false);
  return {.family = Family::distilbert,
          .vocab_size = fields.integer("vocab_size"),
          .positions = fields.integer("max_position_embeddings", 512),
          .layers = fields.integer("n_layers"),
          .heads = fields.integer("n_heads"),
          .width = fields.integer("dim"),
          .mlp_width = fields.integer("hidden_dim"),
          .segments = 0,
          .activation = read_activation(fields, "activation")};
}

/// Returns theta of the layers of a type: that of transformers 5, or the field of earlier versions.
double read_theta(const JsonFields& fields, const char* type, const char* earlier, double otherwise) {
  if (const auto each = fields.object("rope_parameters"))
    if (const auto own = each->object(type)) {
      if (own->text("rope_type", "default") != "default") own->refuse("rope_type", "it must be default");
      if (own->has("rope_theta")) return own->number("rope_theta");
    }
  return fields.number(earlier, otherwise);
}

/// Returns the tokens that each layer sees on each side.
std::vector<std::int64_t> read_windows(const JsonFields& fields, std::int64_t layers) {
  // before lists are made: a damaged file may claim more layers than fit into memory
  if (layers < 1 || layers > most_layers)
    fields.refuse("num_hidden_layers", "it must be from 1 to " + std::to_string(most_layers));
  const std::int64_t window = fields.integer("local_attention", 128) / 2,
                     every = fields.integer("global_attn_every_n_layers", 3);
  if (window < 1 || window > most) fields.refuse("local_attention", "it must be at least 2");
  if (every < 1) fields.refuse("global_attn_every_n_layers", "it must be at least 1");
  const nlohmann::json& types = fields.at("layer_types");
  if (!types.is_null() && (!types.is_array() || static_cast<std::int64_t>(types.size()) != layers ||
                           !std::all_of(types.begin(), types.end(), [](const auto& type) {
                             return type == "full_attention" || type == "sliding_attention";
                           })))
    fields.refuse("layer_types", "it must name full_attention or sliding_attention for each of num_hidden_layers, " +
                                     std::to_string(layers));
  std::vector<std::int64_t> windows;
  for (std::int64_t n = 0; n < layers; ++n) {
    const bool sliding = types.is_null() ? n % every != 0 : types[static_cast<std::size_t>(n)] == "sliding_attention";
    windows.push_back(sliding ? window : 0);
  }
  return windows;
}

Config read_modernbert(const JsonFields& fields) {
  if (const auto scaling = fields.object("rope_scaling"); scaling && !scaling->empty())
    fields.refuse("rope_scaling", "it must be null");
  const std::string read = fields.text("classifier_pooling", "cls");
  if (read != "cls" && read != "mean") fields.refuse("classifier_pooling", "it must be cls or mean");
  const std::int64_t layers = fields.integer("num_hidden_layers");
  return {.family = Family::modernbert,
          .vocab_size = fields.integer("vocab_size"),
          .positions = fields.integer("max_position_embeddings", 8192),
          .layers = layers,
          .heads = fields.integer("num_attention_heads"),
          .width = fields.integer("hidden_size"),
          .mlp_width = fields.integer("intermediate_size"),
          .segments = 0,
          .activation = read_activation(fields, "hidden_activation"),
          .norm_eps = fields.number("norm_eps", 1e-5),
          .attention_bias = fields.boolean("attention_bias", false),
          .mlp_bias = fields.boolean("mlp_bias", false),
          .norm_bias = fields.boolean("norm_bias", false),
          .windows = read_windows(fields, layers),
          .rotary_theta = read_theta(fields, "full_attention", "global_rope_theta", 160000),
          .local_rotary_theta = read_theta(fields, "sliding_attention", "local_rope_theta", 10000),
          .classifier_mean = read == "mean",
          .classifier_bias = fields.boolean("classifier_bias", false),
          .classifier_activation = read_activation(fields, "classifier_activation")};
}

}  // namespace

std::int64_t EncoderConfig::context() const {
  const bool from_padding = family == Family::roberta || family == Family::mpnet;
  return from_padding ? positions - padding_id - 1 : positions;
}

void EncoderConfig::check() const {
  if (family < Family::bert || family > Family::modernbert)
    throw ValueError(
        runtime::format("EncoderConfig: family is {}; the enumeration has no such value", static_cast<int>(family)));
  for (const Activation one : {activation, classifier_activation})
    if (one < Activation::gelu || one > Activation::tanh)
      throw ValueError(
          runtime::format("EncoderConfig: activation is {}; the enumeration has no such value", static_cast<int>(one)));
  check_size("vocab_size", vocab_size);
  check_size("layers", layers, 1, most_layers);
  check_size("heads", heads);
  check_size("width", width);
  check_size("mlp_width", mlp_width);
  check_size("positions", positions);
  check_size("segments", segments, 0);
  check_size("padding_id", padding_id, 0);
  check_size("relative_buckets", relative_buckets, 0);
  check_size("labels", labels, 0);
  if (width % heads != 0)
    throw ValueError(runtime::format("EncoderConfig: heads is {}; it must divide width ({})", heads, width));
  if (context() < 1)
    throw ValueError(runtime::format("EncoderConfig: positions is {}; it must be above padding_id + 1 ({})", positions,
                                     padding_id + 1));
  check_positive("norm_eps", norm_eps);
  if (family != Family::modernbert) return;
  if (width / heads % 2 != 0)
    throw ValueError(
        runtime::format("EncoderConfig: width / heads is {}; rotary positions need an even one", width / heads));
  if (static_cast<std::int64_t>(windows.size()) != layers)
    throw ValueError(runtime::format(
        "EncoderConfig: windows has {} entries; it must have one for each of the {} layers", windows.size(), layers));
  for (const std::int64_t window : windows) check_size("window", window, 0);
  check_positive("rotary_theta", rotary_theta);
  check_positive("local_rotary_theta", local_rotary_theta);
}

EncoderConfig EncoderConfig::from_json(const std::string& text, const std::string& name) {
  const JsonFields fields(text, name);
  const std::string type = fields.text("model_type");
  Config config;
  if (type == "bert") config = read_bert(fields, Family::bert);
  else if (type == "roberta" || type == "xlm-roberta" || type == "camembert")
    config = read_bert(fields, Family::roberta);
  else if (type == "mpnet") config = read_bert(fields, Family::mpnet);
  else if (type == "distilbert") config = read_distilbert(fields);
  else if (type == "modernbert") config = read_modernbert(fields);
  else
    fields.refuse("model_type",
                  "an encoder of texts is bert, roberta, xlm-roberta, camembert, mpnet, distilbert or modernbert");
  config.labels = read_labels(fields);
  try {
    config.check();
  } catch (const ValueError& error) { throw ValueError(name + ": " + error.what()); }
  return config;
}

}  // namespace attn
