// src/model/gguf/names.cc: lists the tensor names and shapes in GGUF files.
#include "model/gguf/names.h"

namespace attn::gguf {
namespace {

class Names {
 public:
  Names(const Architecture& architecture, const ModelConfig& config) : architecture_(architecture), config_(config) {
    const bool gpt2 = architecture_.family == Family::gpt2;
    whole("token_embd.weight", "embedding.weight", {config.vocab_size, config.width});
    if (gpt2) whole("position_embd.weight", "positions.weight", {config.context, config.width});
    for (std::int64_t n = 0; n < config.layers; ++n) {
      const std::string from = "blk." + std::to_string(n) + ".", to = "blocks." + std::to_string(n) + ".";
      norm(from + "attn_norm", to + "attention_norm");
      attention(from, to + "attention.", gpt2);
      if (config.post_norms) norm(from + "post_attention_norm", to + "attention_post_norm");
      norm(from + "ffn_norm", to + "mlp_norm");
      if (config.post_norms) norm(from + "post_ffw_norm", to + "mlp_post_norm");
      if (architecture_.family == Family::phi3) {
        for (const auto& [parameter, row] : {std::pair("gate", std::int64_t{0}), {"up", config.dim_of_mlp()}})
          result.push_back({{from + "ffn_up.weight",
                             {2 * config.dim_of_mlp(), config.width},
                             to + "mlp." + parameter + ".weight",
                             0,
                             config.dim_of_mlp(),
                             false,
                             row}});
      } else {
        if (!gpt2) map(from + "ffn_gate", to + "mlp.gate", config.width, config.dim_of_mlp(), config.mlp_bias);
        map(from + "ffn_up", to + "mlp.up", config.width, config.dim_of_mlp(), config.mlp_bias);
      }
      map(from + "ffn_down", to + "mlp.down", config.dim_of_mlp(), config.width, config.mlp_bias);
    }
    norm("output_norm", "norm");
    if (!config.tied_head) whole("output.weight", "head.weight", {config.vocab_size, config.width});
  }
  std::vector<Stored> result;

 private:
  void whole(const std::string& name, const std::string& parameter, const Dims& sizes) {
    result.push_back({{name, sizes, parameter, 0, sizes[0], false}});
  }
  void norm(const std::string& name, const std::string& parameter, std::int64_t size = 0) {
    whole(name + ".weight", parameter + ".weight", {size > 0 ? size : config_.width});
    if (config_.norm == ModelConfig::Norm::rms_norm_plus_one) result.back().added = 1;
    if (config_.norm == ModelConfig::Norm::layer_norm) whole(name + ".bias", parameter + ".bias", {config_.width});
  }
  /// Adds a linear layer, which the model holds in the rows [row, row + out) of the parameter.
  void map(const std::string& name, const std::string& parameter, std::int64_t in, std::int64_t out, bool bias,
           std::int64_t row = 0, std::int64_t head_rows = 0) {
    result.push_back({{name + ".weight", {out, in}, parameter + ".weight", row, out, false}, head_rows});
    if (bias) result.push_back({{name + ".bias", {out}, parameter + ".bias", row, out, false}, head_rows});
  }
  void attention(const std::string& from, const std::string& to, bool gpt2) {
    const ModelConfig& c = config_;
    const std::int64_t dim = c.dim_of_head(), q = c.heads * dim, kv = c.key_value_heads() * dim,
                       head_rows = architecture_.neighbours ? dim : 0;
    if (gpt2 || architecture_.family == Family::phi3) {
      map(from + "attn_qkv", to + "qkv", c.width, q + 2 * kv, c.attention_bias);
    } else {
      map(from + "attn_q", to + "qkv", c.width, q, c.attention_bias, 0, head_rows);
      map(from + "attn_k", to + "qkv", c.width, kv, c.attention_bias, q, head_rows);
      map(from + "attn_v", to + "qkv", c.width, kv, c.attention_bias, q + kv);
    }
    if (c.qk_norm)
      for (const char* head : {"q_norm", "k_norm"}) norm(from + "attn_" + head, to + head, dim);
    map(from + "attn_output", to + "out", q, c.width, c.bias_of_out());
  }

  const Architecture& architecture_;
  const ModelConfig& config_;
};

}  // namespace

std::vector<Stored> stored_tensors(const Architecture& architecture, const ModelConfig& config) {
  return Names(architecture, config).result;
}

}  // namespace attn::gguf
