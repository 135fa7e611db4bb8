// src/model/blocks.h: declares the layers of a language model, as modules.
#pragma once
#include <attn/model.h>

#include "model/columns.h"
#include "model/gguf/matrix.h"
#include "model/projections.h"

namespace attn {

/// A linear layer: its weight is a tensor, or a matrix of a GGUF file.
class ModelLinear : public nn::Module {
 public:
  /// `stored`: the weight is to be the file's.
  ModelLinear(std::int64_t in, std::int64_t out, bool with_bias, Dtype dtype, bool stored);
  const Tensor weight, bias;  // undefined: the file's weight; no bias
  const std::shared_ptr<gguf::Matrix> matrix;
};

/// The table of the tokens' embeddings, likewise.
class ModelTable : public ModelLinear {
 public:
  using ModelLinear::ModelLinear;
  Tensor rows(const Tensor& ids) const;
};

/// The dtype of a model's numbers, whether its matrices are those of a GGUF file, and the ranks that share them.
struct Held {
  Dtype dtype = Dtype::f32;
  bool stored = false;
  std::shared_ptr<const SharedColumns> ranks = nullptr;
};

/// A LayerNorm or RMSNorm over the last dim.
class ModelNorm : public nn::Module {
 public:
  ModelNorm(ModelConfig::Norm kind, std::int64_t size, double eps, Dtype dtype);
  Tensor operator()(const Tensor& x) const;
  const ModelConfig::Norm kind;
  const double eps;
  const Tensor weight, bias;  // RMSNorm has no bias
};

/// How a layer rotates q and k: with which frequencies, and the tables of the call's tokens, which broadcast over the
/// heads.
struct Rotation {
  const nn::RotaryEmbedding* rotary = nullptr;  // null: it does not
  nn::RotaryEmbedding::Tables tables = {};
};

class SelfAttentionBlock : public nn::Module {
 public:
  SelfAttentionBlock(const ModelConfig& config, Held held);
  LanguageModel::Heads heads_of(const Tensor& x, const Rotation& rotation, const Projections& project) const;
  /// Joins the heads' outputs [B, Hq, T, D] and projects them to [B, T, C].
  Tensor joined(const Tensor& heads, const Projections& project) const;
  const ColumnShare columns;
  const std::int64_t heads, kv_heads, head_dim;  // of this rank
  const ModelLinear qkv, out;
  const std::optional<ModelNorm> q_norm, k_norm;  // norms of each head's q and k, if the model has qk_norm
};

class MlpBlock : public nn::Module {
 public:
  MlpBlock(const ModelConfig& config, Held held);
  Tensor operator()(const Tensor& x, const Projections& project) const;
  const ColumnShare columns;
  const ModelConfig::Activation activation;
  const std::optional<ModelLinear> gate;  // only with swiglu and geglu_tanh
  const ModelLinear up, down;
};

class DecoderBlock : public nn::Module {
 public:
  DecoderBlock(const ModelConfig& config, Held held);
  const ModelNorm attention_norm;
  const SelfAttentionBlock attention;
  const std::optional<ModelNorm> attention_post_norm;  // with post_norms
  const ModelNorm mlp_norm;
  const MlpBlock mlp;
  const std::optional<ModelNorm> mlp_post_norm;
};

/// What a layer's attention does, besides its weights.
struct LayerKind {
  AttentionOptions options;           // mask, scale and softcap
  std::optional<std::size_t> rotary;  // which of the model's rotary embeddings; none: q and k are not rotated
};

/// The modules of a LanguageModel.
struct LanguageModel::Parts {
  explicit Parts(const ModelConfig& config, Held held);
  const Held held;
  const ColumnShare columns;
  ModelTable embedding;
  std::optional<nn::Embedding> positions;     // only with learned positions
  std::vector<nn::RotaryEmbedding> rotaries;  // each differs from the others
  std::vector<LayerKind> kinds;               // one for each layer
  std::optional<double> embedding_scale;
  nn::ModuleList<DecoderBlock> blocks;
  ModelNorm norm;
  std::optional<ModelLinear> head;  // only if the head does not share the embedding's table
  Projections project;
  std::optional<GgufFile> file;  // whose matrices these are
  std::uint64_t digest = 0;      // of a part of each of the file's tensors; only if ranks share the model
};

}  // namespace attn
