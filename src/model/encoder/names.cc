// src/model/encoder/names.cc: lists the tensor names and shapes in files of encoders, one line of names a family.
#include "model/encoder/names.h"

#include <array>

namespace attn {
namespace {

/// The names of a family's tensors; those of a layer follow its number. "": there is none.
struct Names {
  const char *prefix, *tables, *embedding_norm, *layers;
  std::array<const char*, 3> qkv;  // one tensor for all three: the others are ""
  const char *out, *attention_norm, *up, *down, *mlp_norm;
  const char *head_dense, *head_out;
};

constexpr Names bert = {"bert.",
                        "embeddings.word_embeddings",
                        "embeddings.LayerNorm",
                        "encoder.layer.",
                        {"attention.self.query", "attention.self.key", "attention.self.value"},
                        "attention.output.dense",
                        "attention.output.LayerNorm",
                        "intermediate.dense",
                        "output.dense",
                        "output.LayerNorm",
                        "pooler.dense",
                        "classifier"};

constexpr Names roberta = [] {
  Names names = bert;
  names.prefix = "roberta.", names.head_dense = "classifier.dense", names.head_out = "classifier.out_proj";
  return names;
}();

constexpr Names mpnet = [] {
  Names names = roberta;
  names.prefix = "mpnet.", names.qkv = {"attention.attn.q", "attention.attn.k", "attention.attn.v"};
  names.out = "attention.attn.o", names.attention_norm = "attention.LayerNorm";
  return names;
}();

constexpr Names distilbert = {"distilbert.",
                              "embeddings.word_embeddings",
                              "embeddings.LayerNorm",
                              "transformer.layer.",
                              {"attention.q_lin", "attention.k_lin", "attention.v_lin"},
                              "attention.out_lin",
                              "sa_layer_norm",
                              "ffn.lin1",
                              "ffn.lin2",
                              "output_layer_norm",
                              "pre_classifier",
                              "classifier"};

constexpr Names modernbert = {"model.",
                              "embeddings.tok_embeddings",
                              "embeddings.norm",
                              "layers.",
                              {"attn.Wqkv", "", ""},
                              "attn.Wo",
                              "attn_norm",
                              "mlp.Wi",
                              "mlp.Wo",
                              "mlp_norm",
                              "head.dense",
                              "classifier"};

const Names& names_of(EncoderConfig::Family family) {
  constexpr const Names* all[] = {&bert, &roberta, &mpnet, &distilbert, &modernbert};
  return *all[static_cast<std::size_t>(family)];
}

class List {
 public:
  explicit List(const EncoderConfig& config) : config_(config) {}
  void tensor(const std::string& name, const std::string& parameter, const Dims& sizes, std::int64_t row = 0) {
    result.push_back({name, sizes, parameter, row, sizes[0]});
  }
  /// Adds a linear layer: the rows [row, row + out) of the parameter.
  void map(const std::string& name, const std::string& parameter, std::int64_t in, std::int64_t out, bool bias,
           std::int64_t row = 0) {
    tensor(name + ".weight", parameter + ".weight", {out, in}, row);
    if (bias) tensor(name + ".bias", parameter + ".bias", {out}, row);
  }
  void norm(const std::string& name, const std::string& parameter) {
    tensor(name + ".weight", parameter + ".weight", {config_.width});
    if (config_.norm_bias) tensor(name + ".bias", parameter + ".bias", {config_.width});
  }
  std::vector<StoredTensor> result;

 private:
  const EncoderConfig& config_;
};

void add_layer(List& list, const EncoderConfig& c, const Names& names, std::int64_t n) {
  const std::string from = names.layers + std::to_string(n) + ".", to = "blocks." + std::to_string(n) + ".";
  const bool one = *names.qkv[1] == '\0';
  for (std::int64_t i = 0; i < (one ? 1 : 3); ++i)
    list.map(from + names.qkv[static_cast<std::size_t>(i)], to + "qkv", c.width, one ? 3 * c.width : c.width,
             c.attention_bias, i * c.width);
  list.map(from + names.out, to + "out", c.width, c.width, c.attention_bias);
  if (c.family != EncoderConfig::Family::modernbert || n > 0)
    list.norm(from + names.attention_norm, to + "attention_norm");
  const std::int64_t ups = c.family == EncoderConfig::Family::modernbert ? 2 : 1;
  list.map(from + names.up, to + "up", c.width, ups * c.mlp_width, c.mlp_bias);
  list.map(from + names.down, to + "down", c.mlp_width, c.width, c.mlp_bias);
  list.norm(from + names.mlp_norm, to + "mlp_norm");
}

}  // namespace

std::vector<StoredTensor> encoder_tensors(const EncoderConfig& c) {
  const Names& names = names_of(c.family);
  const bool modern = c.family == EncoderConfig::Family::modernbert;
  List list(c);
  list.tensor(names.tables + std::string(".weight"), "embedding.weight", {c.vocab_size, c.width});
  if (!modern) list.tensor("embeddings.position_embeddings.weight", "positions.weight", {c.positions, c.width});
  if (c.segments > 0) list.tensor("embeddings.token_type_embeddings.weight", "segments.weight", {c.segments, c.width});
  list.norm(names.embedding_norm, "embedding_norm");
  if (c.relative_buckets > 0)
    list.tensor("encoder.relative_attention_bias.weight", "relative.weight", {c.relative_buckets, c.heads});
  for (std::int64_t n = 0; n < c.layers; ++n) add_layer(list, c, names, n);
  if (modern) list.norm("final_norm", "norm");
  if (c.labels > 0) {
    list.map(names.head_dense, "head.dense", c.width, c.width, !modern || c.classifier_bias);
    list.map(names.head_out, "head.out", c.width, c.labels, true);
    if (modern) list.norm("head.norm", "head.norm");
  }
  return list.result;
}

std::string encoder_name(const EncoderConfig& config, const std::string& name) {
  const std::string prefix = names_of(config.family).prefix;
  std::string result = name.starts_with(prefix) ? name.substr(prefix.size()) : name;
  for (const auto& [old, now] : {std::pair<std::string, std::string>(".gamma", ".weight"), {".beta", ".bias"}})
    if (result.ends_with(old)) result.replace(result.size() - old.size(), old.size(), now);
  return result;
}

bool is_encoder_weight(const EncoderConfig& config, const std::string& name) {
  const Names& names = names_of(config.family);
  for (const char* buffer : {"position_ids", "token_type_ids", "inv_freq"})
    if (name.ends_with(buffer)) return false;
  const auto begins = [&](const std::string& with) { return name.starts_with(with.substr(0, with.find('.') + 1)); };
  if (name.starts_with("embeddings.") || name.starts_with("final_norm.") || begins(names.layers)) return true;
  return config.labels > 0 &&
         (name.starts_with(names.head_dense) || name.starts_with(names.head_out) || name.starts_with("head.norm."));
}

}  // namespace attn
