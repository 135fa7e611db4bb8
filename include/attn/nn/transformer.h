// include/attn/nn/transformer.h: implements torch.nn.Transformer, its encoder and decoder, and their layers.
#pragma once
#include <attn/nn/containers.h>
#include <attn/nn/layers.h>
#include <attn/nn/multihead_attention.h>

#include <functional>
#include <optional>
#include <variant>

namespace attn::nn {

enum class Activation { relu, gelu };
/// What a feed-forward block applies between its two linear layers: one of torch's names, or a function of a tensor.
using FeedForwardActivation = std::variant<Activation, std::function<Tensor(const Tensor&)>>;

/// Options of a layer of an encoder or decoder; names and defaults are torch's.
struct TransformerLayerOptions {
  std::int64_t dim_feedforward = 2048;
  double dropout = 0.1;  ///< of attention weights, of the activation, and of what is added to the residual stream
  FeedForwardActivation activation = Activation::relu;
  double layer_norm_eps = 1e-5;
  bool batch_first = false;
  bool norm_first = false;  ///< true: norms before attention and feed-forward block; false: after the sums
  bool bias = true;         ///< whether projections, linear layers and norms have a bias
  /// Whether a row that sees no key gives NaN, and a padded row 0, where torch's code path does (docs/torch.md).
  bool exact = false;
  Dtype dtype = Dtype::f32;
  bool draw = true;  ///< false: the matrices start as zeros, because they are set or loaded later
};

struct TransformerEncoderLayerCall {
  Tensor src_mask = {};              ///< [L, L] or [N * nhead, L, L]; bool: True = masked; float: added
  Tensor src_key_padding_mask = {};  ///< [N, L], [L] unbatched; bool: True = masked; float: added
  bool is_causal = false;            ///< a hint that src_mask is causal; needs src_mask
};

/// A layer of an encoder: self-attention and a feed-forward block, each added to its input.
///
///   x = norm1(x + attention(x)),  y = norm2(x + feed_forward(x))       norm_first: x + attention(norm1(x)), ...
///   feed_forward(x) = linear2(activation(linear1(x)))
///
/// Shapes   src [L, N, d_model], with batch_first [N, L, d_model], unbatched [L, d_model] -> the same
/// Dtypes   f32, f64, bf16, f16, the same for src and the parameters; masks bool, that dtype or f32
/// State    self_attn.*, linear1.*, linear2.*, norm1.*, norm2.*: torch's names and order
/// Draws    self_attn, linear1, linear2, as torch. Dropout draws from the global generator, in torch's order
/// A row that sees no key gets self_attn.out_proj.bias from attention; with `exact` NaN where torch's fast path gives
/// it: in eval mode, when no gradient is recorded, with batch_first, bias, an even nhead and relu or gelu.
/// The hint is MultiheadAttention's; that fast path ignores it.
/// Errors   ValueError for invalid sizes in the constructor and for is_causal without a mask; ShapeError and DtypeError
///          otherwise
/// Source   Vaswani 2017 (1706.03762); torch.nn.TransformerEncoderLayer
class ATTN_API TransformerEncoderLayer : public Module {
 public:
  TransformerEncoderLayer(std::int64_t d_model, std::int64_t nhead, const TransformerLayerOptions& options = {});
  Tensor forward(const Tensor& src, const TransformerEncoderLayerCall& call = {}) const;
  Tensor operator()(const Tensor& src, const TransformerEncoderLayerCall& call = {}) const {
    return forward(src, call);
  }
  /// Returns a layer with parameters of its own that have the same values; draws nothing. Source: copy.deepcopy.
  TransformerEncoderLayer clone() const;
  /// Returns whether torch would compute `src` by its fast path here.
  bool takes_fast_path(const Tensor& src) const;

  const std::int64_t d_model, nhead;
  const TransformerLayerOptions options;
  const MultiheadAttention self_attn;
  const Linear linear1, linear2;
  const LayerNorm norm1, norm2;
};

/// Each mask as those of TransformerEncoderLayerCall; T rows of tgt, S rows of memory.
struct TransformerDecoderCall {
  Tensor tgt_mask = {};                 ///< [T, T] or [N * nhead, T, T]
  Tensor memory_mask = {};              ///< [T, S] or [N * nhead, T, S]
  Tensor tgt_key_padding_mask = {};     ///< [N, T], [T] unbatched
  Tensor memory_key_padding_mask = {};  ///< [N, S], [S] unbatched
  /// A hint that tgt_mask is causal. Not given: a layer takes it as false, a decoder looks at the mask.
  std::optional<bool> tgt_is_causal = std::nullopt;
  bool memory_is_causal = false;
};

/// A layer of a decoder: self-attention, attention to `memory`, and a feed-forward block, each added to its input.
///
///   x = norm1(x + attention(x)),  x = norm2(x + attention(x, memory)),  y = norm3(x + feed_forward(x))
///
/// Shapes   tgt [T, N, d_model], memory [S, N, d_model], with batch_first [N, T, d_model] and so on -> that of tgt
/// State    self_attn.*, multihead_attn.*, linear1.*, linear2.*, norm1.*, norm2.*, norm3.*: torch's names and order
/// Draws    self_attn, multihead_attn, linear1, linear2. Dropout as in TransformerEncoderLayer
/// Rows that see no key, hints and errors are those of MultiheadAttention.
/// Source   Vaswani 2017 (1706.03762); torch.nn.TransformerDecoderLayer
class ATTN_API TransformerDecoderLayer : public Module {
 public:
  TransformerDecoderLayer(std::int64_t d_model, std::int64_t nhead, const TransformerLayerOptions& options = {});
  Tensor forward(const Tensor& tgt, const Tensor& memory, const TransformerDecoderCall& call = {}) const;
  Tensor operator()(const Tensor& tgt, const Tensor& memory, const TransformerDecoderCall& call = {}) const {
    return forward(tgt, memory, call);
  }
  /// Returns a layer with parameters of its own that have the same values; draws nothing. Source: copy.deepcopy.
  TransformerDecoderLayer clone() const;

  const std::int64_t d_model, nhead;
  const TransformerLayerOptions options;
  const MultiheadAttention self_attn, multihead_attn;
  const Linear linear1, linear2;
  const LayerNorm norm1, norm2, norm3;
};

struct TransformerEncoderCall {
  Tensor mask = {};                  ///< as src_mask of a layer
  Tensor src_key_padding_mask = {};  ///< as that of a layer
  /// A hint that the mask is causal. Not given: the encoder looks at the mask.
  std::optional<bool> is_causal = std::nullopt;
};

/// A stack of layers, and a norm if one is given.
///
/// State    layers.0.*, layers.1.*, ..., norm.*: torch's names and order
/// Draws    nothing: the layers are clones of the one given, with its values, as in torch
/// With layers that are `exact`, and enable_nested_tensor (the argument nested_tensor), the rows that
/// src_key_padding_mask hides are 0 before the norm where torch packs the batch: in eval mode, without mask and
/// recorded gradient, with padding at the end, layers that take the fast path and have the norms last. Without `exact`
/// a row has one result on every path.
/// Errors   ValueError for num_layers below 1; those of the layers
/// Source   torch.nn.TransformerEncoder
class ATTN_API TransformerEncoder : public Module {
 public:
  TransformerEncoder(const TransformerEncoderLayer& encoder_layer, std::int64_t num_layers, bool nested_tensor = true);
  /// With a norm, or any module that takes one tensor and returns one.
  template <typename Norm>
    requires std::is_base_of_v<Module, Norm>
  TransformerEncoder(const TransformerEncoderLayer& encoder_layer, std::int64_t num_layers, const Norm& norm,
                     bool nested_tensor = true)
      : TransformerEncoder(encoder_layer, num_layers, nested_tensor) {
    register_module("norm", norm);
    *norm_ = [norm](const Tensor& x) { return norm(x); };
  }
  Tensor forward(const Tensor& src, const TransformerEncoderCall& call = {}) const;
  Tensor operator()(const Tensor& src, const TransformerEncoderCall& call = {}) const { return forward(src, call); }

  const ModuleList<TransformerEncoderLayer> layers;
  const bool enable_nested_tensor;

 private:
  bool packs(const Tensor& src, const TransformerEncoderCall& call) const;
  const std::shared_ptr<std::function<Tensor(const Tensor&)>> norm_;
};

/// A stack of layers, and a norm if one is given; as TransformerEncoder.
///
/// Source   torch.nn.TransformerDecoder
class ATTN_API TransformerDecoder : public Module {
 public:
  TransformerDecoder(const TransformerDecoderLayer& decoder_layer, std::int64_t num_layers);
  template <typename Norm>
    requires std::is_base_of_v<Module, Norm>
  TransformerDecoder(const TransformerDecoderLayer& decoder_layer, std::int64_t num_layers, const Norm& norm)
      : TransformerDecoder(decoder_layer, num_layers) {
    register_module("norm", norm);
    *norm_ = [norm](const Tensor& x) { return norm(x); };
  }
  Tensor forward(const Tensor& tgt, const Tensor& memory, const TransformerDecoderCall& call = {}) const;
  Tensor operator()(const Tensor& tgt, const Tensor& memory, const TransformerDecoderCall& call = {}) const {
    return forward(tgt, memory, call);
  }

  const ModuleList<TransformerDecoderLayer> layers;

 private:
  const std::shared_ptr<std::function<Tensor(const Tensor&)>> norm_;
};

/// Options of a Transformer; names and defaults are torch's.
struct TransformerOptions {
  std::int64_t num_encoder_layers = 6, num_decoder_layers = 6;
  TransformerLayerOptions layer = {};                               ///< of every layer
  std::optional<TransformerEncoder> custom_encoder = std::nullopt;  ///< instead of num_encoder_layers of `layer`
  std::optional<TransformerDecoder> custom_decoder = std::nullopt;
};

struct TransformerCall {
  Tensor src_mask = {}, tgt_mask = {}, memory_mask = {};
  Tensor src_key_padding_mask = {}, tgt_key_padding_mask = {}, memory_key_padding_mask = {};
  std::optional<bool> src_is_causal = std::nullopt, tgt_is_causal = std::nullopt;
  bool memory_is_causal = false;
};

/// An encoder and a decoder, each with a final norm: decoder(tgt, encoder(src)).
///
/// Shapes   src [S, N, d_model], tgt [T, N, d_model], with batch_first [N, S, d_model] and so on -> that of tgt
/// State    encoder.layers.0.self_attn.in_proj_weight, ...: torch's names and order
/// Draws    a layer of the encoder, one of the decoder; then every matrix again by xavier_uniform_, in the order of the
///          parameters, as torch
/// Errors   those of encoder and decoder; ShapeError when the batches of src and tgt differ
/// Source   Vaswani 2017 (1706.03762); torch.nn.Transformer
class ATTN_API Transformer : public Module {
 public:
  explicit Transformer(std::int64_t d_model = 512, std::int64_t nhead = 8, const TransformerOptions& options = {});
  Tensor forward(const Tensor& src, const Tensor& tgt, const TransformerCall& call = {}) const;
  Tensor operator()(const Tensor& src, const Tensor& tgt, const TransformerCall& call = {}) const {
    return forward(src, tgt, call);
  }
  /// Returns [rows, rows]: 0 on and below the diagonal, -inf above it.
  static Tensor generate_square_subsequent_mask(std::int64_t rows, Dtype dtype = Dtype::f32);

  const std::int64_t d_model, nhead;
  const bool batch_first;
  const TransformerEncoder encoder;
  const TransformerDecoder decoder;
};

}  // namespace attn::nn
