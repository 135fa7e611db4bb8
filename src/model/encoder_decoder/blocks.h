// src/model/encoder_decoder/blocks.h: declares the layers of an encoder-decoder, as modules.
#pragma once
#include <attn/encoder_decoder.h>

#include "model/blocks.h"

#include <functional>

namespace attn {

/// Which of the two stacks a layer belongs to.
enum class Side { encoder, decoder };

/// What a call does in each layer: attention among a stack's own rows, q, k, v [total, H, D] -> [total, H D].
using Attend = std::function<Tensor(const Tensor& q, const Tensor& k, const Tensor& v)>;

/// A layer: attention, cross-attention (in a decoder), an MLP. Its weights are zeros until they are drawn or loaded.
class PairLayer : public nn::Module {
 public:
  PairLayer(const EncoderDecoderConfig& config, Side side, Dtype dtype);
  /// Attention among the rows [total, C].
  Tensor attended(const Tensor& x, const Attend& attend, const Projections& project, double dropout) const;
  /// Cross-attention: `attend` takes q [total, H, D].
  Tensor crossed(const Tensor& x, const std::function<Tensor(const Tensor&)>& attend, const Projections& project,
                 double dropout) const;
  Tensor mlp(const Tensor& x, const Projections& project, double dropout) const;
  /// The queries of cross-attention [total, H, D], of rows before their norm.
  Tensor cross_queries(const Tensor& x, const Projections& project) const;

  const bool norms_first, gated;
  const std::int64_t heads, head_dim;
  const EncoderDecoderConfig::Activation activation;
  const ModelNorm attention_norm;
  const ModelLinear qkv, out;
  const std::optional<ModelNorm> cross_norm;
  const std::optional<ModelLinear> cross_q, cross_kv, cross_out;
  const ModelNorm mlp_norm;
  const ModelLinear up, down;

 private:
  Tensor before(const Tensor& x, const ModelNorm& norm) const { return norms_first ? norm(x) : x; }
  Tensor behind(const Tensor& x, const Tensor& y, const ModelNorm& norm, double dropout) const;
};

/// One of the two stacks.
class PairStack : public nn::Module {
 public:
  PairStack(const EncoderDecoderConfig& config, Side side, Dtype dtype);
  const std::optional<nn::Embedding> learned_positions;  // BART's, mBART's: row 2 + t is that of position t
  const Tensor sines;                                    // sines_of
  const std::optional<ModelNorm> embedding_norm;         // BART's, mBART's
  const std::optional<nn::Embedding> relative;           // T5's biases [buckets, H]
  const nn::ModuleList<PairLayer> layers;
  const std::optional<ModelNorm> norm;  // with norms_first
};

/// What an EncoderDecoder consists of, besides its config.
struct EncoderDecoder::Parts {
  Parts(const EncoderDecoderConfig& config, Dtype dtype);
  const Dtype dtype;
  const ModelTable embedding;
  const std::optional<ModelTable> decoder_embedding;  // unless shared
  const PairStack encoder, decoder;
  const std::optional<ModelLinear> head;  // unless tied
  const Tensor head_bias;                 // [V]; undefined: T5, M2M-100
  const std::optional<double> embedding_scale, output_scale;
  const Projections project;

  const ModelTable& target_embedding() const { return decoder_embedding ? *decoder_embedding : embedding; }
  /// Adds positions to the embeddings of tokens [total]; `rows`: those of the table of positions.
  Tensor embedded(Side side, const Tensor& ids, const std::vector<std::int64_t>& rows, double dropout) const;
  /// Runs the decoder on embeddings [total, C]. attend(layer) attends among the rows; `cu_rows`: which of the rows
  /// attend to which text of the memory. on_queries(layer, q) sees the queries of cross-attention, [1, H, total, D].
  Tensor decoded(const EncoderDecoderConfig& config, Tensor x, const Memory& memory, const Tensor& cu_rows,
                 double dropout, const std::function<Attend(std::int64_t)>& attend,
                 const std::function<void(std::int64_t, const Tensor&)>& on_queries = {}) const;
};

}  // namespace attn
