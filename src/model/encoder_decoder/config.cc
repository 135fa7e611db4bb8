// src/model/encoder_decoder/config.cc: reads the shape of an encoder-decoder from transformers' config.json, checks and
// writes it.
#include <attn/translation.h>

#include "model/encoder/activation.h"
#include "model/json_fields.h"
#include "model/weights_files.h"

#include "runtime/format.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

namespace attn {
namespace {

using Pair = EncoderDecoderConfig;

// limits every size, so that the product of two fits in 64 bits
constexpr std::int64_t most_of_size = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t most_pair_layers = 1 << 20;
// of a table that is computed: a damaged file may claim more positions than fit into memory
constexpr std::int64_t most_sines = 1 << 15;

constexpr std::pair<const char*, Pair::Family> pair_types[] = {
    {"t5", Pair::Family::t5},           {"mt5", Pair::Family::t5},        {"bart", Pair::Family::bart},
    {"mbart", Pair::Family::mbart},     {"marian", Pair::Family::marian}, {"m2m_100", Pair::Family::m2m_100},
    {"pegasus", Pair::Family::pegasus},
};

void check_range(const char* name, std::int64_t value, std::int64_t least = 1, std::int64_t largest = most_of_size) {
  if (value < least || value > largest)
    throw ValueError(
        runtime::format("EncoderDecoderConfig: {} is {}; it must be from {} to {}", name, value, least, largest));
}

void check_heads(const Pair& config, const char* name, std::int64_t heads) {
  check_range(name, heads);
  if (config.head_dim == 0 && config.width % heads != 0)
    throw ValueError(
        runtime::format("EncoderDecoderConfig: {} is {}; it must divide width ({})", name, heads, config.width));
}

/// Reads feed_forward_proj: an activation, or one behind "gated-". T5's gated gelu is its tanh form.
void read_feed_forward(const JsonFields& fields, const char* otherwise, Pair& config) {
  const std::string text = fields.text("feed_forward_proj", otherwise), gate = "gated-";
  config.gated = text.starts_with(gate);
  const std::string name = text == "gated-gelu" ? "gelu_new" : config.gated ? text.substr(gate.size()) : text;
  const JsonFields one("{\"feed_forward_proj\":" + nlohmann::json(name).dump() + "}", "");
  try {
    config.activation = read_activation(one, "feed_forward_proj");
  } catch (const ValueError&) {
    fields.refuse("feed_forward_proj",
                  "it must be gelu, gelu_new, gelu_pytorch_tanh, relu, silu or tanh, also behind gated-");
  }
}

Pair read_t5(const JsonFields& fields, bool multilingual) {
  Pair config{.family = Pair::Family::t5,
              .vocab_size = fields.integer("vocab_size"),
              .positions = 0,
              .encoder_layers = fields.integer("num_layers"),
              .encoder_heads = fields.integer("num_heads"),
              .width = fields.integer("d_model"),
              .head_dim = fields.integer("d_kv", 64),
              .encoder_mlp_width = fields.integer("d_ff"),
              .norm_eps = fields.number("layer_norm_epsilon", 1e-6),
              .relative_buckets = fields.integer("relative_attention_num_buckets", 32),
              .relative_distance = fields.integer("relative_attention_max_distance", 128),
              .padding_id = fields.integer("pad_token_id", 0),
              .dropout = fields.number("dropout_rate", 0.1)};
  config.decoder_layers = fields.integer("num_decoder_layers", config.encoder_layers);
  config.decoder_heads = config.encoder_heads;
  config.decoder_mlp_width = config.encoder_mlp_width;
  config.decoder_vocab_size = config.vocab_size;
  read_feed_forward(fields, multilingual ? "gated-gelu" : "relu", config);
  // an untied head means rows that are not scaled; transformers 5 writes the latter. mT5's never are
  config.tied_head = fields.boolean("tie_word_embeddings", !multilingual);
  config.scaled_output = !multilingual && fields.boolean("scale_decoder_outputs", config.tied_head);
  if (config.head_dim < 1) fields.refuse("d_kv", "it must be at least 1");
  return config;
}

Pair read_bart(const JsonFields& fields, Pair::Family family) {
  const bool many = family == Pair::Family::m2m_100, marian = family == Pair::Family::marian;
  const std::int64_t padding = family == Pair::Family::pegasus ? 0 : marian ? 58100 : 1;
  Pair config{.family = family,
              .vocab_size = fields.integer("vocab_size"),
              .positions = fields.integer("max_position_embeddings", 1024),
              .encoder_layers = fields.integer("encoder_layers"),
              .decoder_layers = fields.integer("decoder_layers"),
              .encoder_heads = fields.integer("encoder_attention_heads"),
              .decoder_heads = fields.integer("decoder_attention_heads"),
              .width = fields.integer("d_model"),
              .encoder_mlp_width = fields.integer("encoder_ffn_dim"),
              .decoder_mlp_width = fields.integer("decoder_ffn_dim"),
              .activation = read_activation(fields, "activation_function", many ? "relu" : "gelu"),
              .scaled_embedding = fields.boolean("scale_embedding", many),
              .tied_head = fields.boolean("tie_word_embeddings", true),
              .padding_id = fields.integer("pad_token_id", padding),
              .dropout = fields.number("dropout", 0.1)};
  config.shared_embedding = !marian || fields.boolean("share_encoder_decoder_embeddings", true);
  config.decoder_vocab_size =
      config.shared_embedding ? config.vocab_size : fields.integer("decoder_vocab_size", config.vocab_size);
  if (config.positions < 1) fields.refuse("max_position_embeddings", "it must be at least 1");
  return config;
}

}  // namespace

void EncoderDecoderConfig::check() const {
  if (family < Family::t5 || family > Family::pegasus)
    throw ValueError(runtime::format("EncoderDecoderConfig: family is {}; the enumeration has no such value",
                                     static_cast<int>(family)));
  if (activation < Activation::gelu || activation > Activation::tanh)
    throw ValueError(runtime::format("EncoderDecoderConfig: activation is {}; the enumeration has no such value",
                                     static_cast<int>(activation)));
  check_range("vocab_size", vocab_size);
  check_range("decoder_vocab_size", decoder_vocab_size);
  const bool learned = family == Family::bart || family == Family::mbart;
  check_range("positions", positions, family == Family::t5 ? 0 : 1, learned ? most_of_size - 2 : most_sines);
  check_range("encoder_layers", encoder_layers, 1, most_pair_layers);
  check_range("decoder_layers", decoder_layers, 1, most_pair_layers);
  check_range("width", width);
  check_range("head_dim", head_dim, 0);
  check_heads(*this, "encoder_heads", encoder_heads);
  check_heads(*this, "decoder_heads", decoder_heads);
  check_range("encoder_mlp_width", encoder_mlp_width);
  check_range("decoder_mlp_width", decoder_mlp_width);
  check_range("padding_id", padding_id, 0, vocab_size - 1);
  if (family == Family::t5) {
    check_range("relative_buckets", relative_buckets, 4);
    check_range("relative_distance", relative_distance, 1);
    if (relative_buckets % 4 != 0)
      throw ValueError(runtime::format("EncoderDecoderConfig: relative_buckets is {}; it must be a multiple of 4",
                                       relative_buckets));
    if (relative_distance <= relative_buckets / 2)
      throw ValueError(
          runtime::format("EncoderDecoderConfig: relative_distance is {}; it must be above {}, half of "
                          "relative_buckets",
                          relative_distance, relative_buckets / 2));
    if (scaled_embedding)  // its config.json could not say so
      throw ValueError("EncoderDecoderConfig: scaled_embedding is true; T5's embeddings are not scaled");
  } else if (gated || head_dim != 0) {
    throw ValueError("EncoderDecoderConfig: a gated MLP and a head_dim of its own are T5's");
  } else if (scaled_output) {
    throw ValueError("EncoderDecoderConfig: scaled_output is true; only T5's last rows are scaled");
  }
  if (family == Family::m2m_100 && width < 4)
    throw ValueError(runtime::format("EncoderDecoderConfig: width is {}; M2M-100's must be at least 4", width));
  if (shared_embedding && vocab_size != decoder_vocab_size)
    throw ValueError(
        runtime::format("EncoderDecoderConfig: decoder_vocab_size is {}; with a shared table it must be "
                        "vocab_size ({})",
                        decoder_vocab_size, vocab_size));
  if (!(norm_eps > 0) || std::isinf(norm_eps))
    throw ValueError(runtime::format("EncoderDecoderConfig: norm_eps is {}; it must be above 0, and finite", norm_eps));
  if (!(dropout >= 0 && dropout < 1))
    throw ValueError(runtime::format("EncoderDecoderConfig: dropout is {}; it must be from 0 to below 1", dropout));
}

bool is_encoder_decoder(const std::string& folder) {
  try {
    const auto fields = fields_of("is_encoder_decoder", std::filesystem::path(folder) / "config.json");
    const std::string type = fields ? fields->text("model_type", "") : "";
    return std::any_of(std::begin(pair_types), std::end(pair_types),
                       [&](const auto& one) { return type == one.first; });
  } catch (const std::exception&) {
    return false;  // loading the folder reports the error
  }
}

EncoderDecoderConfig EncoderDecoderConfig::from_json(const std::string& text, const std::string& name) {
  const JsonFields fields(text, name);
  const std::string type = fields.text("model_type");
  const auto* const found =
      std::find_if(std::begin(pair_types), std::end(pair_types), [&](const auto& one) { return type == one.first; });
  if (found == std::end(pair_types))
    fields.refuse("model_type", "an encoder-decoder is t5, mt5, bart, mbart, marian, m2m_100 or pegasus");
  EncoderDecoderConfig config =
      found->second == Family::t5 ? read_t5(fields, type == "mt5") : read_bart(fields, found->second);
  try {
    config.check();
  } catch (const ValueError& error) { throw ValueError(name + ": " + error.what()); }
  return config;
}

std::string EncoderDecoderConfig::to_json(Dtype dtype) const {
  check();
  nlohmann::ordered_json json;
  const char* const classes[] = {"T5", "Bart", "MBart", "Marian", "M2M100", "Pegasus"};  // in the order of Family
  const char* const types[] = {"t5", "bart", "mbart", "marian", "m2m_100", "pegasus"};
  const auto of_family = static_cast<std::size_t>(family);
  json["architectures"] = {std::string(classes[of_family]) +
                           (family == Family::marian ? "MTModel" : "ForConditionalGeneration")};
  json["model_type"] = types[of_family];
  json["is_encoder_decoder"] = true;
  json["dtype"] = torch_name_of(dtype);
  json["vocab_size"] = vocab_size;
  json["d_model"] = width;
  json["pad_token_id"] = padding_id;
  json["tie_word_embeddings"] = family == Family::t5 ? scaled_output : tied_head;
  if (family == Family::t5) {
    json["num_layers"] = encoder_layers;
    json["num_decoder_layers"] = decoder_layers;
    json["num_heads"] = encoder_heads;
    json["d_kv"] = dim_of_head();
    json["d_ff"] = encoder_mlp_width;
    json["layer_norm_epsilon"] = norm_eps;
    json["relative_attention_num_buckets"] = relative_buckets;
    json["relative_attention_max_distance"] = relative_distance;
    json["dropout_rate"] = dropout;
    const bool of_t5 = gated && activation == Activation::gelu_tanh;
    json["feed_forward_proj"] = of_t5 ? "gated-gelu" : (gated ? "gated-" : "") + std::string(name_of(activation));
    return json.dump(2) + "\n";
  }
  json["max_position_embeddings"] = positions;
  json["encoder_layers"] = encoder_layers;
  json["decoder_layers"] = decoder_layers;
  json["encoder_attention_heads"] = encoder_heads;
  json["decoder_attention_heads"] = decoder_heads;
  json["encoder_ffn_dim"] = encoder_mlp_width;
  json["decoder_ffn_dim"] = decoder_mlp_width;
  json["activation_function"] = name_of(activation);
  json["scale_embedding"] = scaled_embedding;
  json["dropout"] = dropout;
  if (family == Family::marian) {
    json["share_encoder_decoder_embeddings"] = shared_embedding;
    json["decoder_vocab_size"] = decoder_vocab_size;
  }
  return json.dump(2) + "\n";
}

}  // namespace attn
