// src/model/blocks.cc: implements the norms, the attention layer and the MLP of a language model. Their weights are
// zeros until they are drawn or loaded.
#include "model/blocks.h"

#include <attn/ops.h>

namespace attn {
namespace {

/// Returns how many bytes the packed copies of weights (projections.h) may take: the size of all of the model's weights
/// if that is at most 1 GiB, else 0.
std::int64_t most_packed_bytes(const ModelConfig& config, Dtype dtype) {
  constexpr std::int64_t most = std::int64_t{1} << 30;
  const std::int64_t all = config.parameters() * static_cast<std::int64_t>(size_of(dtype));
  return all <= most ? all : 0;
}

ModelLinear projection(std::int64_t in, std::int64_t out, bool bias, Held held) {
  return ModelLinear(in, out, bias, held.dtype, held.stored);
}

nn::RMSNorm norm_of_heads(const ModelConfig& config, Dtype dtype) {
  return nn::RMSNorm(config.dim_of_head(), {.eps = config.norm_eps, .dtype = dtype});
}

}  // namespace

ModelLinear::ModelLinear(std::int64_t in, std::int64_t out, bool with_bias, Dtype dtype, bool stored)
    : weight(register_parameter("weight", stored ? Tensor() : zeros({out, in}, dtype))),
      bias(register_parameter("bias", with_bias ? zeros({out}, dtype) : Tensor())),
      matrix(stored ? std::make_shared<gguf::Matrix>(out, in, dtype) : nullptr) {}

Tensor ModelTable::rows(const Tensor& ids) const { return matrix ? matrix->rows(ids) : embedding(ids, weight); }

ModelNorm::ModelNorm(const ModelConfig& config, Dtype dtype)
    : kind(config.norm), eps(config.norm_eps), weight(register_parameter("weight", ones({config.width}, dtype))),
      bias(register_parameter(
          "bias", config.norm == ModelConfig::Norm::layer_norm ? zeros({config.width}, dtype) : Tensor())) {}

Tensor ModelNorm::operator()(const Tensor& x) const {
  return kind == ModelConfig::Norm::layer_norm ? layer_norm(x, weight.sizes(), weight, bias, eps)
                                               : rms_norm(x, weight.sizes(), weight, eps);
}

SelfAttentionBlock::SelfAttentionBlock(const ModelConfig& config, Held held)
    : heads(config.heads), kv_heads(config.key_value_heads()), head_dim(config.dim_of_head()),
      qkv(register_module("qkv",
                          projection(config.width, (heads + 2 * kv_heads) * head_dim, config.attention_bias, held))),
      out(register_module("out", projection(heads * head_dim, config.width, config.bias_of_out(), held))),
      q_norm(config.qk_norm ? std::optional(register_module("q_norm", norm_of_heads(config, held.dtype)))
                            : std::nullopt),
      k_norm(config.qk_norm ? std::optional(register_module("k_norm", norm_of_heads(config, held.dtype)))
                            : std::nullopt) {}

LanguageModel::Heads SelfAttentionBlock::heads_of(const Tensor& x, const TokenPlaces& places,
                                                  const Projections& project) const {
  // Splits qkv as [B, T, heads of q, k and v, D], so that in the backward pass the gradients [B, H, T, D] are joined in
  // one copy.
  std::vector<Tensor> parts = project(qkv, x)
                                  .reshape({x.size(0), x.size(1), heads + 2 * kv_heads, head_dim})
                                  .split({heads, kv_heads, kv_heads}, 2);
  if (q_norm) parts[0] = (*q_norm)(parts[0]);
  if (k_norm) parts[1] = (*k_norm)(parts[1]);
  LanguageModel::Heads result{parts[0].transpose(1, 2), parts[1].transpose(1, 2), parts[2].transpose(1, 2)};
  if (places.turn.cos.defined()) {
    result.q = rotary(result.q, places.turn.cos, places.turn.sin);
    result.k = rotary(result.k, places.turn.cos, places.turn.sin);
  }
  return result;
}

Tensor SelfAttentionBlock::joined(const Tensor& x, const Projections& project) const {
  return project(out, x.transpose(1, 2).reshape({x.size(0), x.size(2), heads * head_dim}));
}

MlpBlock::MlpBlock(const ModelConfig& config, Held held)
    : activation(config.activation),
      gate(activation == ModelConfig::Activation::swiglu
               ? std::optional(
                     register_module("gate", projection(config.width, config.dim_of_mlp(), config.mlp_bias, held)))
               : std::nullopt),
      up(register_module("up", projection(config.width, config.dim_of_mlp(), config.mlp_bias, held))),
      down(register_module("down", projection(config.dim_of_mlp(), config.width, config.mlp_bias, held))) {}

Tensor MlpBlock::operator()(const Tensor& x, const Projections& project) const {
  if (gate) return project(down, silu(project(*gate, x)) * project(up, x));
  return project(down, gelu(project(up, x), activation == ModelConfig::Activation::gelu_tanh ? GeluApproximate::tanh
                                                                                             : GeluApproximate::none));
}

DecoderBlock::DecoderBlock(const ModelConfig& config, Held held)
    : attention_norm(register_module("attention_norm", ModelNorm(config, held.dtype))),
      attention(register_module("attention", SelfAttentionBlock(config, held))),
      mlp_norm(register_module("mlp_norm", ModelNorm(config, held.dtype))),
      mlp(register_module("mlp", MlpBlock(config, held))) {}

LanguageModel::Parts::Parts(const ModelConfig& config, Held held)
    : held(held), embedding(config.width, config.vocab_size, /*with_bias=*/false, held.dtype, held.stored),
      norm(config, held.dtype), project(most_packed_bytes(config, held.dtype)) {
  if (config.positions == ModelConfig::Positions::learned)
    positions.emplace(config.context, config.width, nn::EmbeddingOptions{.dtype = held.dtype, .draw = false});
  else
    rotary.emplace(config.dim_of_head(),
                   nn::RotaryEmbeddingOptions{.theta = config.rotary_theta, .scaling = config.rotary_scaling});
  for (std::int64_t n = 0; n < config.layers; ++n) blocks.push_back(DecoderBlock(config, held));
  if (!config.tied_head) head.emplace(projection(config.width, config.vocab_size, /*bias=*/false, held));
}

}  // namespace attn
