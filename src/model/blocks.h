// src/model/blocks.h: declares the layers of a language model, as modules.
#pragma once
#include <attn/model.h>

#include "model/projections.h"

namespace attn {

/// A LayerNorm or RMSNorm over the last dim.
class ModelNorm : public nn::Module {
 public:
  ModelNorm(const ModelConfig& config, Dtype dtype);
  Tensor operator()(const Tensor& x) const;
  const ModelConfig::Norm kind;
  const double eps;
  const Tensor weight, bias;  // RMSNorm has no bias
};

/// The positions of a call's tokens.
struct TokenPlaces {
  Tensor positions;                       // i64 [T], or [B, T] where sequences have different positions
  nn::RotaryEmbedding::Tables turn = {};  // with rotary positions their cos and sin, which broadcast over the heads
};

class SelfAttentionBlock : public nn::Module {
 public:
  SelfAttentionBlock(const ModelConfig& config, Dtype dtype);
  LanguageModel::Heads heads_of(const Tensor& x, const TokenPlaces& places, const Projections& project) const;
  /// Joins the heads' outputs [B, Hq, T, D] and projects them to [B, T, C].
  Tensor joined(const Tensor& heads, const Projections& project) const;
  const std::int64_t heads, kv_heads, head_dim;
  const nn::Linear qkv, out;
  const std::optional<nn::RMSNorm> q_norm, k_norm;  // norms of each head's q and k, if the model has qk_norm
};

class MlpBlock : public nn::Module {
 public:
  MlpBlock(const ModelConfig& config, Dtype dtype);
  Tensor operator()(const Tensor& x, const Projections& project) const;
  const ModelConfig::Activation activation;
  const std::optional<nn::Linear> gate;  // only with swiglu
  const nn::Linear up, down;
};

class DecoderBlock : public nn::Module {
 public:
  DecoderBlock(const ModelConfig& config, Dtype dtype);
  const ModelNorm attention_norm;
  const SelfAttentionBlock attention;
  const ModelNorm mlp_norm;
  const MlpBlock mlp;
};

/// The modules of a LanguageModel.
struct LanguageModel::Parts {
  explicit Parts(const ModelConfig& config, Dtype dtype);
  nn::Embedding embedding;
  std::optional<nn::Embedding> positions;  // only with learned positions
  std::optional<nn::RotaryEmbedding> rotary;
  nn::ModuleList<DecoderBlock> blocks;
  ModelNorm norm;
  std::optional<nn::Linear> head;  // only if the head does not share the embedding's table
  Projections project;
};

}  // namespace attn
