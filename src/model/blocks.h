// src/model/blocks.h: the layers of a language model, as modules.
#pragma once
#include <attn/model.h>

#include "model/projections.h"

namespace attn {

/// Either norm over the last dim.
class ModelNorm : public nn::Module {
 public:
  ModelNorm(const ModelConfig& config, Dtype dtype);
  Tensor operator()(const Tensor& x) const;
  const ModelConfig::Norm kind;
  const double eps;
  const Tensor weight, bias;  // no bias with rms_norm
};

/// Where the tokens of a call stand.
struct TokenPlaces {
  Tensor positions;                       // i64 [T], or [B, T] where sequences differ
  nn::RotaryEmbedding::Tables turn = {};  // of these positions, when they are rotary; broadcast over the heads
};

class SelfAttentionBlock : public nn::Module {
 public:
  SelfAttentionBlock(const ModelConfig& config, Dtype dtype);
  LanguageModel::Heads heads_of(const Tensor& x, const TokenPlaces& places, const Projections& project) const;
  /// Of heads' outputs [B, Hq, T, D] -> [B, T, C].
  Tensor joined(const Tensor& heads, const Projections& project) const;
  const std::int64_t heads, kv_heads, head_dim;
  const nn::Linear qkv, out;
  const std::optional<nn::RMSNorm> q_norm, k_norm;  // of each head, with qk_norm
};

class MlpBlock : public nn::Module {
 public:
  MlpBlock(const ModelConfig& config, Dtype dtype);
  Tensor operator()(const Tensor& x, const Projections& project) const;
  const ModelConfig::Activation activation;
  const std::optional<nn::Linear> gate;  // of swiglu
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

/// What a LanguageModel is made of.
struct LanguageModel::Parts {
  explicit Parts(const ModelConfig& config, Dtype dtype);
  nn::Embedding embedding;
  std::optional<nn::Embedding> positions;  // learned
  std::optional<nn::RotaryEmbedding> rotary;
  nn::ModuleList<DecoderBlock> blocks;
  ModelNorm norm;
  std::optional<nn::Linear> head;  // when it is not the embedding's table
  Projections project;
};

}  // namespace attn
