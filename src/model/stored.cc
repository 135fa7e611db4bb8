// src/model/stored.cc: lists the tensor names and shapes in files of GPT-2, of Llama-like models, and of attn's own
// format.
#include "model/stored.h"

#include "model/fields.h"

namespace attn {
namespace {

/// Collects the tensors of a family's layers.
class Names {
 public:
  Names(const ModelConfig& config, Family family) : config_(config), gpt2_(family == Family::gpt2) {}

  /// Adds a vector or a table that the file holds as the model does.
  void as_it_is(const std::string& name, const std::string& parameter, const Dims& sizes) {
    result.push_back({name, sizes, parameter, 0, sizes[0]});
  }
  /// Adds a linear layer with `in` inputs, and its bias. The model holds it in the rows [row, row + out) of the
  /// parameter.
  void map(const std::string& name, const std::string& parameter, std::int64_t in, std::int64_t out, bool bias,
           std::int64_t row = 0) {
    result.push_back({name + ".weight", gpt2_ ? Dims{in, out} : Dims{out, in}, parameter + ".weight", row, out, gpt2_});
    if (bias) result.push_back({name + ".bias", {out}, parameter + ".bias", row, out});
  }
  /// Adds a linear layer without bias that holds two parameters, one under the other.
  void pair(const std::string& name, const std::string& first, const std::string& second, std::int64_t in,
            std::int64_t out) {
    for (const auto& [parameter, row] : {std::pair(first, std::int64_t{0}), {second, out}})
      result.push_back({name + ".weight", {2 * out, in}, parameter + ".weight", 0, out, false, row});
  }
  void norm(const std::string& name, const std::string& parameter) {
    as_it_is(name + ".weight", parameter + ".weight", {config_.width});
    if (config_.norm == ModelConfig::Norm::layer_norm) as_it_is(name + ".bias", parameter + ".bias", {config_.width});
  }

  /// Adds the norms of each head's q and k, if the model has such norms.
  void head_norms(const std::string& from, const std::string& to) {
    for (const char* name : {"q_norm.weight", "k_norm.weight"})
      if (config_.qk_norm) as_it_is(from + name, to + name, {config_.dim_of_head()});
  }

  std::vector<StoredTensor> result;

 private:
  const ModelConfig& config_;
  const bool gpt2_;
};

void gpt2_layer(Names& names, const ModelConfig& c, const std::string& from, const std::string& to) {
  names.norm(from + "ln_1", to + "attention_norm");
  names.map(from + "attn.c_attn", to + "attention.qkv", c.width, 3 * c.width, true);
  names.map(from + "attn.c_proj", to + "attention.out", c.width, c.width, true);
  names.norm(from + "ln_2", to + "mlp_norm");
  names.map(from + "mlp.c_fc", to + "mlp.up", c.width, c.dim_of_mlp(), true);
  names.map(from + "mlp.c_proj", to + "mlp.down", c.dim_of_mlp(), c.width, true);
}

void llama_layer(Names& names, const ModelConfig& c, Family family, const std::string& from, const std::string& to) {
  const std::int64_t q = c.heads * c.dim_of_head(), kv = c.key_value_heads() * c.dim_of_head();
  names.norm(from + "input_layernorm", to + "attention_norm");
  if (family == Family::phi3) {
    names.map(from + "self_attn.qkv_proj", to + "attention.qkv", c.width, q + 2 * kv, c.attention_bias);
  } else {
    names.map(from + "self_attn.q_proj", to + "attention.qkv", c.width, q, c.attention_bias);
    names.map(from + "self_attn.k_proj", to + "attention.qkv", c.width, kv, c.attention_bias, q);
    names.map(from + "self_attn.v_proj", to + "attention.qkv", c.width, kv, c.attention_bias, q + kv);
  }
  names.head_norms(from + "self_attn.", to + "attention.");
  names.map(from + "self_attn.o_proj", to + "attention.out", q, c.width, c.bias_of_out());
  if (c.post_norms) {
    names.norm(from + "post_attention_layernorm", to + "attention_post_norm");
    names.norm(from + "pre_feedforward_layernorm", to + "mlp_norm");
    names.norm(from + "post_feedforward_layernorm", to + "mlp_post_norm");
  } else {
    names.norm(from + "post_attention_layernorm", to + "mlp_norm");
  }
  if (family == Family::phi3) {
    names.pair(from + "mlp.gate_up_proj", to + "mlp.gate", to + "mlp.up", c.width, c.dim_of_mlp());
  } else {
    names.map(from + "mlp.gate_proj", to + "mlp.gate", c.width, c.dim_of_mlp(), c.mlp_bias);
    names.map(from + "mlp.up_proj", to + "mlp.up", c.width, c.dim_of_mlp(), c.mlp_bias);
  }
  names.map(from + "mlp.down_proj", to + "mlp.down", c.dim_of_mlp(), c.width, c.mlp_bias);
}

void own_layer(Names& names, const ModelConfig& c, const std::string& block) {
  const std::int64_t q = c.heads * c.dim_of_head(), kv = c.key_value_heads() * c.dim_of_head();
  names.norm(block + "attention_norm", block + "attention_norm");
  names.map(block + "attention.qkv", block + "attention.qkv", c.width, q + 2 * kv, c.attention_bias);
  names.head_norms(block + "attention.", block + "attention.");
  names.map(block + "attention.out", block + "attention.out", q, c.width, c.bias_of_out());
  if (c.post_norms) names.norm(block + "attention_post_norm", block + "attention_post_norm");
  names.norm(block + "mlp_norm", block + "mlp_norm");
  if (c.post_norms) names.norm(block + "mlp_post_norm", block + "mlp_post_norm");
  if (is_gated(c.activation)) names.map(block + "mlp.gate", block + "mlp.gate", c.width, c.dim_of_mlp(), c.mlp_bias);
  names.map(block + "mlp.up", block + "mlp.up", c.width, c.dim_of_mlp(), c.mlp_bias);
  names.map(block + "mlp.down", block + "mlp.down", c.dim_of_mlp(), c.width, c.mlp_bias);
}

}  // namespace

std::vector<StoredTensor> stored_tensors(const ModelConfig& c, Family family) {
  Names names(c, family);
  const std::string prefix = prefix_of(family);
  const bool gpt2 = family == Family::gpt2, llama = is_llama_like(family);
  names.as_it_is(prefix +
                     (gpt2    ? "wte"
                      : llama ? "embed_tokens"
                              : "embedding") +
                     ".weight",
                 "embedding.weight", {c.vocab_size, c.width});
  if (c.positions == ModelConfig::Positions::learned)
    names.as_it_is(prefix + (gpt2 ? "wpe" : "positions") + ".weight", "positions.weight", {c.context, c.width});
  for (std::int64_t n = 0; n < c.layers; ++n) {
    const std::string block = "blocks." + std::to_string(n) + ".";
    if (gpt2) gpt2_layer(names, c, prefix + "h." + std::to_string(n) + ".", block);
    else if (llama) llama_layer(names, c, family, prefix + "layers." + std::to_string(n) + ".", block);
    else own_layer(names, c, block);
  }
  names.norm(prefix + (gpt2 ? "ln_f" : "norm"), "norm");
  if (!c.tied_head)
    names.as_it_is(family == Family::attn ? "head.weight" : "lm_head.weight", "head.weight", {c.vocab_size, c.width});
  return names.result;
}

std::string prefix_of(Family family) {
  return family == Family::gpt2 ? "transformer." : is_llama_like(family) ? "model." : "";
}

bool is_buffer(std::string_view name) {
  const std::size_t dot = name.rfind('.', name.rfind('.') - 1);
  const std::string_view last = dot == name.npos ? name : name.substr(dot + 1);  // the last two parts of the name
  for (const char* buffer : {"attn.bias", "attn.masked_bias", "rotary_emb.inv_freq", "rotary_emb.original_inv_freq",
                             "rotary_emb.cos_cached", "rotary_emb.sin_cached"})
    if (last == buffer) return true;
  return false;
}

bool is_head(std::string_view name) { return name == "lm_head.weight" || name == "head.weight"; }

}  // namespace attn
