// src/model/encoder/blocks.h: declares the layers of an encoder of texts, as modules.
#pragma once
#include <attn/encoder.h>

#include "model/blocks.h"
#include "model/encoder/projections.h"
#include "model/gguf/model.h"

namespace attn {

/// What the attention of one layer does for the texts of a call, besides the layer's weights.
struct EncoderAttention {
  AttentionOptions options;                     // where each text begins, the window, the bias
  const nn::RotaryEmbedding* rotary = nullptr;  // null: q and k are not rotated
  nn::RotaryEmbedding::Tables tables = {};      // of all rows; they broadcast over the heads
};

/// A layer: attention, then an MLP. Its weights are zeros until they are loaded.
class EncoderBlock : public nn::Module {
 public:
  /// `first`: ModernBERT's first layer has no norm before its attention.
  EncoderBlock(const EncoderConfig& config, bool first, Held held);
  /// Computes the rows of packed texts, [total, C].
  Tensor operator()(const Tensor& x, const EncoderAttention& attention, const EncoderProjections& project) const;
  /// Returns the weights of its linear layers; none if they are matrices of a file.
  std::vector<Tensor> weights() const;
  /// Adds the layers' matrices of a file, by the names of their parameters behind `prefix`.
  void add_matrices(const std::string& prefix, gguf::Matrices& to) const;

 private:
  Tensor attended(const Tensor& x, const EncoderAttention& attention, const EncoderProjections& project) const;
  Tensor mlp(const Tensor& x, const EncoderProjections& project) const;
  const bool norms_first_;
  const std::int64_t heads_;
  const EncoderConfig::Activation activation_;
  const ModelLinear qkv, out;
  const std::optional<nn::LayerNorm> attention_norm;
  const ModelLinear up, down;
  const nn::LayerNorm mlp_norm;
};

/// The layers of a model for sequence classification, above one row a text.
class EncoderHead : public nn::Module {
 public:
  EncoderHead(const EncoderConfig& config, Dtype dtype);
  /// Computes [N, C] -> [N, labels].
  Tensor operator()(const Tensor& x, const EncoderProjections& project) const;

 private:
  const EncoderConfig::Activation activation_;
  const ModelLinear dense, out;
  const std::optional<nn::LayerNorm> norm;  // ModernBERT's
};

/// A linear map of the vectors: sentence-transformers' Dense.
struct EncoderDense {
  Tensor weight, bias;  // f32 or f64; bias may be undefined
  bool tanh = false;    // the activation; false: none
};

/// What a TextEncoder consists of, besides its config.
struct TextEncoder::Parts {
  Parts(const EncoderConfig& config, Held held);
  /// Computes the rows of packed texts; their arguments have been checked.
  Tensor rows(const EncoderConfig& config, const Tensor& ids, const std::vector<std::int64_t>& ends,
              const Tensor& segments, const EncoderProjections& project) const;
  /// Returns whether linear maps follow the pooling.
  static bool has_dense(const TextEncoder& encoder);
  const Dtype dtype;
  ModelTable embedding;
  std::optional<nn::Embedding> positions, segments;
  nn::LayerNorm embedding_norm;
  std::optional<nn::Embedding> relative;         // MPNet's table of biases
  std::optional<nn::RotaryEmbedding> rotary[2];  // ModernBERT's: of layers without, with a window
  nn::ModuleList<EncoderBlock> blocks;
  std::optional<nn::LayerNorm> norm;  // ModernBERT's last
  std::optional<EncoderHead> head;
  std::vector<EncoderDense> dense;  // applied to the vectors, one after another
  bool sigmoid = false;             // of a score
  LayerPacker packer;
  std::optional<Tokenizer> tokenizer;  // that of the folder, if it has one
};

}  // namespace attn
