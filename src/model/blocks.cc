// src/model/blocks.cc: implements the norms, the attention layer and the MLP of a language model. Their weights are
// zeros until they are drawn or loaded.
#include "model/blocks.h"

#include <attn/ops.h>

#include "model/fields.h"

#include <algorithm>
#include <cmath>

namespace attn {
namespace {

/// Returns how many bytes the packed copies of weights (projections.h) may take: the size of all of the model's weights
/// if that is at most 1 GiB, else 0. Of a shared model it is this rank's part.
std::int64_t most_packed_bytes(const ModelConfig& config, const Held& held) {
  constexpr std::int64_t most = std::int64_t{1} << 30;
  const std::int64_t ranks = held.ranks ? held.ranks->size() : 1;
  const std::int64_t all = config.parameters() / ranks * static_cast<std::int64_t>(size_of(held.dtype));
  return all <= most ? all : 0;
}

ModelLinear projection(std::int64_t in, std::int64_t out, bool bias, Held held) {
  return ModelLinear(in, out, bias, held.dtype, held.stored);
}

using Norm = ModelConfig::Norm;

ModelNorm norm_of_width(const ModelConfig& config, Dtype dtype) {
  return ModelNorm(config.norm, config.width, config.norm_eps, dtype);
}

ModelNorm norm_of_heads(const ModelConfig& config, Dtype dtype) {
  const Norm kind = config.norm == Norm::layer_norm ? Norm::rms_norm : config.norm;
  return ModelNorm(kind, config.dim_of_head(), config.norm_eps, dtype);
}

/// Returns sqrt(width) in f32, rounded to the dtype, as transformers keeps it.
double embedding_scale_of(const ModelConfig& config, Dtype dtype) {
  return full({1}, std::sqrt(static_cast<double>(config.width))).to(dtype).to(Dtype::f64).item();
}

}  // namespace

ModelLinear::ModelLinear(std::int64_t in, std::int64_t out, bool with_bias, Dtype dtype, bool stored)
    : weight(register_parameter("weight", stored ? Tensor() : zeros({out, in}, dtype))),
      bias(register_parameter("bias", with_bias ? zeros({out}, dtype) : Tensor())),
      matrix(stored ? std::make_shared<gguf::Matrix>(out, in, dtype) : nullptr) {}

Tensor ModelTable::rows(const Tensor& ids) const { return matrix ? matrix->rows(ids) : embedding(ids, weight); }

ModelNorm::ModelNorm(Norm kind, std::int64_t size, double eps, Dtype dtype)
    : kind(kind), eps(eps),
      weight(register_parameter("weight", full({size}, kind == Norm::rms_norm_plus_one ? 0.0 : 1.0, dtype))),
      bias(register_parameter("bias", kind == Norm::layer_norm ? zeros({size}, dtype) : Tensor())) {}

Tensor ModelNorm::operator()(const Tensor& x) const {
  if (kind == Norm::layer_norm) return layer_norm(x, weight.sizes(), weight, bias, eps);
  if (kind == Norm::rms_norm) return rms_norm(x, weight.sizes(), weight, eps);
  // bf16 cannot hold 1 + w
  const Tensor wide = weight.dtype() == Dtype::f64 ? weight : weight.to(Dtype::f32);
  return rms_norm(x, weight.sizes(), wide + 1, eps);
}

SelfAttentionBlock::SelfAttentionBlock(const ModelConfig& config, Held held)
    : columns(config, held.ranks), heads(columns.size(Columns::heads)), kv_heads(columns.size(Columns::key_heads)),
      head_dim(config.dim_of_head()),
      qkv(register_module("qkv",
                          projection(config.width, (heads + 2 * kv_heads) * head_dim, config.attention_bias, held))),
      out(register_module(
          "out", projection(config.heads * head_dim, columns.size(Columns::width), config.bias_of_out(), held))),
      q_norm(config.qk_norm ? std::optional(register_module("q_norm", norm_of_heads(config, held.dtype)))
                            : std::nullopt),
      k_norm(config.qk_norm ? std::optional(register_module("k_norm", norm_of_heads(config, held.dtype)))
                            : std::nullopt) {}

LanguageModel::Heads SelfAttentionBlock::heads_of(const Tensor& x, const Rotation& rotation,
                                                  const Projections& project) const {
  // Splits qkv as [B, T, heads of q, k and v, D], so that in the backward pass the gradients [B, H, T, D] are joined in
  // one copy.
  std::vector<Tensor> parts = project(qkv, x)
                                  .reshape({x.size(0), x.size(1), heads + 2 * kv_heads, head_dim})
                                  .split({heads, kv_heads, kv_heads}, 2);
  if (q_norm) parts[0] = (*q_norm)(parts[0]);
  if (k_norm) parts[1] = (*k_norm)(parts[1]);
  LanguageModel::Heads result{parts[0].transpose(1, 2), parts[1].transpose(1, 2), parts[2].transpose(1, 2)};
  if (rotation.rotary != nullptr) {
    result.q = rotation.rotary->rotated(result.q, rotation.tables);
    result.k = rotation.rotary->rotated(result.k, rotation.tables);
  }
  return result;
}

Tensor SelfAttentionBlock::joined(const Tensor& x, const Projections& project) const {
  const Tensor own = x.transpose(1, 2).reshape({x.size(0), x.size(2), heads * head_dim});
  return columns.joined(project(out, columns.joined(own, Columns::heads, head_dim)), Columns::width);
}

MlpBlock::MlpBlock(const ModelConfig& config, Held held)
    : columns(config, held.ranks), activation(config.activation),
      gate(is_gated(activation)
               ? std::optional(register_module(
                     "gate", projection(config.width, columns.size(Columns::mlp), config.mlp_bias, held)))
               : std::nullopt),
      up(register_module("up", projection(config.width, columns.size(Columns::mlp), config.mlp_bias, held))),
      down(register_module("down",
                           projection(config.dim_of_mlp(), columns.size(Columns::width), config.mlp_bias, held))) {}

Tensor MlpBlock::operator()(const Tensor& x, const Projections& project) const {
  using Activation = ModelConfig::Activation;
  const auto activated = [&](const Tensor& y) {
    if (activation == Activation::swiglu) return silu(y);
    return gelu(y, activation == Activation::gelu ? GeluApproximate::none : GeluApproximate::tanh);
  };
  const Tensor own = gate ? activated(project(*gate, x)) * project(up, x) : activated(project(up, x));
  return columns.joined(project(down, columns.joined(own, Columns::mlp)), Columns::width);
}

DecoderBlock::DecoderBlock(const ModelConfig& config, Held held)
    : attention_norm(register_module("attention_norm", norm_of_width(config, held.dtype))),
      attention(register_module("attention", SelfAttentionBlock(config, held))),
      attention_post_norm(config.post_norms
                              ? std::optional(register_module("attention_post_norm", norm_of_width(config, held.dtype)))
                              : std::nullopt),
      mlp_norm(register_module("mlp_norm", norm_of_width(config, held.dtype))),
      mlp(register_module("mlp", MlpBlock(config, held))),
      mlp_post_norm(config.post_norms
                        ? std::optional(register_module("mlp_post_norm", norm_of_width(config, held.dtype)))
                        : std::nullopt) {}

LanguageModel::Parts::Parts(const ModelConfig& config, Held held)
    : held(held), columns(config, held.ranks),
      embedding(config.width, columns.size(Columns::vocabulary), /*with_bias=*/false, held.dtype, held.stored),
      norm(norm_of_width(config, held.dtype)), project(most_packed_bytes(config, held)) {
  if (config.positions == ModelConfig::Positions::learned)
    positions.emplace(config.context, config.width, nn::EmbeddingOptions{.dtype = held.dtype, .draw = false});
  if (config.scaled_embedding) embedding_scale = embedding_scale_of(config, held.dtype);
  std::vector<LayerConfig> met;  // one for each of `rotaries`
  for (std::int64_t n = 0; n < config.layers; ++n) {
    const LayerConfig layer = config.layer(n);
    LayerKind& kind = kinds.emplace_back();
    kind.options.mask = config.mask(n);
    kind.options.softcap = config.attention_softcap;
    if (config.query_scalar > 0) kind.options.scale = 1 / std::sqrt(config.query_scalar);
    if (layer.rotary) {
      const auto same = [&](const LayerConfig& one) {
        return one.rotary_theta == layer.rotary_theta && one.rotary_scaling == layer.rotary_scaling;
      };
      kind.rotary = static_cast<std::size_t>(std::find_if(met.begin(), met.end(), same) - met.begin());
      if (*kind.rotary == met.size()) {
        met.push_back(layer);
        rotaries.emplace_back(config.rotated_dim(),
                              nn::RotaryEmbeddingOptions{.theta = layer.rotary_theta, .scaling = layer.rotary_scaling});
      }
    }
    blocks.push_back(DecoderBlock(config, held));
  }
  if (!config.tied_head)
    head.emplace(projection(config.width, columns.size(Columns::vocabulary), /*bias=*/false, held));
}

}  // namespace attn
