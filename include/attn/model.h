// include/attn/model.h: decoder-only language models: GPT-2's and Llama's shapes, their files, training and decoding.
#pragma once
#include <attn/cache.h>
#include <attn/nn.h>
#include <attn/random.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

// What this header declares is in a library of its own: link attn::model (which brings attn with it).
namespace attn {

/// The shape of a model: everything but its weights. The defaults are GPT-2's.
struct ATTN_API ModelConfig {
  enum class Norm { layer_norm, rms_norm };
  enum class Positions { learned, rotary };
  enum class Activation {
    gelu,       ///< x/2 (1 + erf(x / sqrt 2))
    gelu_tanh,  ///< its tanh form, GPT-2's "gelu_new"
    swiglu,     ///< silu(x W_gate) * (x W_up). Source: Shazeer 2020 (2002.05202)
  };

  std::int64_t vocab_size = 50257;  ///< V
  std::int64_t context = 1024;      ///< most tokens of a sequence
  std::int64_t layers = 12;
  std::int64_t heads = 12;     ///< Hq
  std::int64_t kv_heads = 0;   ///< Hk, divides heads; 0: as heads
  std::int64_t width = 768;    ///< C
  std::int64_t head_dim = 0;   ///< D; 0: width / heads
  std::int64_t mlp_width = 0;  ///< 0: 4 width
  Norm norm = Norm::layer_norm;
  double norm_eps = 1e-5;
  Positions positions = Positions::learned;
  double rotary_theta = 10000;
  std::optional<nn::RotaryScaling> rotary_scaling = std::nullopt;
  Activation activation = Activation::gelu_tanh;
  bool attention_bias = true;  ///< of the projections around attention
  bool mlp_bias = true;
  bool tied_head = true;  ///< the output layer is the table of the tokens
  double dropout = 0;     ///< in training: of the embeddings, the attention weights and what each layer adds

  std::int64_t key_value_heads() const { return kv_heads > 0 ? kv_heads : heads; }
  std::int64_t dim_of_head() const { return head_dim > 0 ? head_dim : heads > 0 ? width / heads : 0; }
  std::int64_t dim_of_mlp() const { return mlp_width > 0 ? mlp_width : 4 * width; }
  /// Numbers in the weights, a tied table once.
  std::int64_t parameters() const;

  /// 4 layers, 4 heads, width 128, context 64: minutes on a laptop.
  static ModelConfig nano(std::int64_t vocab_size);
  /// 6 layers, 6 heads, width 384, context 256.
  static ModelConfig baby(std::int64_t vocab_size);
  /// GPT-2 small: 12 layers, 12 heads, width 768, context 1024.
  static ModelConfig small(std::int64_t vocab_size = 50257);

  /// ValueError, one line, for a shape that is none: a size below 1, heads that do not divide.
  void check() const;
  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

/// A decoder-only transformer.
///
///   x = E[ids] (+ P[positions])      x += W_o attention(W_qkv norm(x))      x += mlp(norm(x))      logits = W_head norm(x)
///
/// Shapes   ids i64 [B, T], T <= context -> logits [B, T, V]
/// Dtypes   f32, f64, bf16, f16: that of all weights, the activations and the logits
/// Names    embedding, positions, blocks.0.attention_norm, blocks.0.attention.qkv (q, k, v rows one under another),
///          blocks.0.attention.out, blocks.0.mlp_norm, blocks.0.mlp.{gate, up, down}, norm, head (not when tied)
/// Draws    what nanoGPT's model draws from the same state of torch's generator: for GPT-2's shape the weights are equal number for
///          number. All weights N(0, 0.02), biases 0, norms 1; the last projection of each residual branch N(0, 0.02 / sqrt(2 layers))
/// Bits     a row's logits depend neither on the batch, nor on the threads, nor on a cache
/// Source   Radford 2019 (GPT-2); Touvron 2023 (2302.13971, Llama)
class ATTN_API LanguageModel : public nn::Module {
 public:
  /// Draws from the global generator, or from `generator`.
  explicit LanguageModel(const ModelConfig& config, Dtype dtype = Dtype::f32, Generator* generator = nullptr);

  /// Logits of every position. ValueError for more than `context` tokens or an id that is not in the vocabulary.
  Tensor forward(const Tensor& ids) const;
  Tensor operator()(const Tensor& ids) const { return forward(ids); }
  /// The mean cross entropy of targets i64 [B, T] (-100: counts for nothing).
  Tensor loss(const Tensor& ids, const Tensor& targets) const;

  /// What the output layer is given, [B, T, C], and what it makes of it, [.., V].
  Tensor hidden(const Tensor& ids) const;
  Tensor logits(const Tensor& hidden) const;

  const ModelConfig config;
  Dtype dtype() const;

  struct Parts;
  const Parts& parts() const { return *parts_; }

 private:
  std::shared_ptr<const Parts> parts_;
};

}  // namespace attn
