// src/model/encoder_decoder/names.cc: lists the tensor names and shapes in files of encoder-decoders.
#include "model/encoder_decoder/names.h"

#include <array>

namespace attn {
namespace {

using PairConfig = EncoderDecoderConfig;
using PairFamily = PairConfig::Family;

constexpr const char *prefix_of_bart = "model.", *output_bias = "final_logits_bias";

/// The names of a layer's tensors, after its number; T5's depend on the side.
struct LayerNames {
  std::array<std::string, 3> qkv;
  std::string out, attention_norm;
  std::array<std::string, 3> cross;
  std::string cross_out, cross_norm, up, gate, down, mlp_norm;
};

LayerNames names_of_layer(const PairConfig& c, bool decoder) {
  if (c.family != PairFamily::t5)
    return {{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
            "self_attn.out_proj",
            "self_attn_layer_norm",
            {"encoder_attn.q_proj", "encoder_attn.k_proj", "encoder_attn.v_proj"},
            "encoder_attn.out_proj",
            "encoder_attn_layer_norm",
            "fc1",
            "",
            "fc2",
            "final_layer_norm"};
  const std::string self = "layer.0.SelfAttention.", cross = "layer.1.EncDecAttention.",
                    last = decoder ? "layer.2." : "layer.1.", mlp = last + "DenseReluDense.";
  return {{self + "q", self + "k", self + "v"},
          self + "o",
          "layer.0.layer_norm",
          {cross + "q", cross + "k", cross + "v"},
          cross + "o",
          "layer.1.layer_norm",
          c.gated ? mlp + "wi_1" : mlp + "wi",
          mlp + "wi_0",
          mlp + "wo",
          last + "layer_norm"};
}

class PairList {
 public:
  explicit PairList(const PairConfig& config) : config_(config) {}
  void tensor(const std::string& name, const std::string& parameter, const Dims& sizes, std::int64_t row = 0) {
    result.push_back({name, sizes, parameter, row, sizes[0]});
  }
  /// Adds a linear layer: the rows [row, row + out) of the parameter.
  void map(const std::string& name, const std::string& parameter, std::int64_t in, std::int64_t out,
           std::int64_t row = 0) {
    tensor(name + ".weight", parameter + ".weight", {out, in}, row);
    if (has_biases()) tensor(name + ".bias", parameter + ".bias", {out}, row);
  }
  void norm(const std::string& name, const std::string& parameter) {
    tensor(name + ".weight", parameter + ".weight", {config_.width});
    if (has_biases()) tensor(name + ".bias", parameter + ".bias", {config_.width});
  }
  bool has_biases() const { return config_.family != PairFamily::t5; }
  std::vector<StoredTensor> result;

 private:
  const PairConfig& config_;
};

void add_pair_layer(PairList& list, const PairConfig& c, bool decoder, std::int64_t n) {
  const std::string side = decoder ? "decoder." : "encoder.", number = std::to_string(n) + ".",
                    from = side + (c.family == PairFamily::t5 ? "block." : "layers.") + number,
                    to = side + "layers." + number;
  const LayerNames names = names_of_layer(c, decoder);
  const std::int64_t inner = decoder ? c.decoder_heads * c.dim_of_decoder_head() : c.encoder_heads * c.dim_of_head();
  const std::int64_t mlp = decoder ? c.decoder_mlp_width : c.encoder_mlp_width;
  for (std::int64_t i = 0; i < 3; ++i)
    list.map(from + names.qkv[static_cast<std::size_t>(i)], to + "qkv", c.width, inner, i * inner);
  list.map(from + names.out, to + "out", inner, c.width);
  list.norm(from + names.attention_norm, to + "attention_norm");
  if (decoder) {
    list.map(from + names.cross[0], to + "cross_q", c.width, inner);
    for (std::int64_t i = 1; i < 3; ++i)
      list.map(from + names.cross[static_cast<std::size_t>(i)], to + "cross_kv", c.width, inner, (i - 1) * inner);
    list.map(from + names.cross_out, to + "cross_out", inner, c.width);
    list.norm(from + names.cross_norm, to + "cross_norm");
  }
  if (c.gated) list.map(from + names.gate, to + "up", c.width, mlp);
  list.map(from + names.up, to + "up", c.width, mlp, c.gated ? mlp : 0);
  list.map(from + names.down, to + "down", mlp, c.width);
  list.norm(from + names.mlp_norm, to + "mlp_norm");
}

void add_stack(PairList& list, const PairConfig& c, bool decoder) {
  const std::string side = decoder ? "decoder." : "encoder.";
  if (c.family == PairFamily::bart || c.family == PairFamily::mbart) {
    list.tensor(side + "embed_positions.weight", side + "positions.weight", {c.positions + 2, c.width});
    list.norm(side + "layernorm_embedding", side + "embedding_norm");
  }
  if (c.family == PairFamily::t5)
    list.tensor(side + "block.0.layer.0.SelfAttention.relative_attention_bias.weight", side + "relative.weight",
                {c.relative_buckets, decoder ? c.decoder_heads : c.encoder_heads});
  const std::int64_t layers = decoder ? c.decoder_layers : c.encoder_layers;
  for (std::int64_t n = 0; n < layers; ++n) add_pair_layer(list, c, decoder, n);
  if (c.norms_first())
    list.norm(side + (c.family == PairFamily::t5 ? "final_layer_norm" : "layer_norm"), side + "norm");
}

}  // namespace

std::vector<StoredTensor> pair_tensors(const PairConfig& c) {
  PairList list(c);
  const std::string table = "embed_tokens.weight";
  list.tensor(c.shared_embedding ? "shared.weight" : "encoder." + table, "embedding.weight", {c.vocab_size, c.width});
  if (!c.shared_embedding) list.tensor("decoder." + table, "decoder_embedding.weight", {c.decoder_vocab_size, c.width});
  for (const bool decoder : {false, true}) add_stack(list, c, decoder);
  if (!c.tied_head) list.tensor("lm_head.weight", "head.weight", {c.decoder_vocab_size, c.width});
  return list.result;
}

std::string pair_name(const PairConfig& config, const std::string& name) {
  const bool prefixed = config.family != PairFamily::t5 && name.starts_with(prefix_of_bart);
  return prefixed ? name.substr(std::string_view(prefix_of_bart).size()) : name;
}

std::string pair_file_name(const PairConfig& config, const std::string& name) {
  const bool bare = config.family == PairFamily::t5 || name == "lm_head.weight" || name == output_bias;
  return bare ? name : prefix_of_bart + name;
}

bool is_pair_weight(const PairConfig& config, const std::string& name) {
  const bool computed = config.family != PairFamily::bart && config.family != PairFamily::mbart;
  if (computed && name.find("embed_positions.") != name.npos) return false;
  if (name.ends_with("EncDecAttention.relative_attention_bias.weight")) return false;
  return name.starts_with("encoder.") || name.starts_with("decoder.")
             ? !name.ends_with(".version")
             : name == "shared.weight" || name == "lm_head.weight" || name == output_bias;
}

}  // namespace attn
