// include/attn/model.h: decoder-only language models: the shapes of GPT-2, Llama, Mistral and Qwen, their files,
// training and decoding.
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
  bool attention_bias = true;                             ///< of the projections around attention
  std::optional<bool> attention_out_bias = std::nullopt;  ///< of the one after it; none given: as attention_bias
  bool qk_norm = false;                                   ///< RMS norm over each head's q and k, before they are turned
  std::int64_t sliding_window = 0;  ///< a token sees itself and the sliding_window - 1 before it; 0: all before it
  bool mlp_bias = true;
  bool tied_head = true;  ///< the output layer is the table of the tokens
  double dropout = 0;     ///< in training: of the embeddings, the attention weights and what each layer adds
  std::vector<std::int64_t> end_tokens = {};  ///< ids after which a text is over

  std::int64_t key_value_heads() const { return kv_heads > 0 ? kv_heads : heads; }
  std::int64_t dim_of_head() const { return head_dim > 0 ? head_dim : heads > 0 ? width / heads : 0; }
  std::int64_t dim_of_mlp() const { return mlp_width > 0 ? mlp_width : 4 * width; }
  bool bias_of_out() const { return attention_out_bias.value_or(attention_bias); }
  /// What a token sees: what stands before it, all or the sliding window, and itself.
  Mask mask() const;
  /// Numbers in the weights, a tied table once. ValueError as `check`.
  std::int64_t parameters() const;

  /// 4 layers, 4 heads, width 128, context 64: minutes on a laptop.
  static ModelConfig nano(std::int64_t vocab_size);
  /// 6 layers, 6 heads, width 384, context 256.
  static ModelConfig baby(std::int64_t vocab_size);
  /// GPT-2 small: 12 layers, 12 heads, width 768, context 1024.
  static ModelConfig small(std::int64_t vocab_size = 50257);

  /// ValueError, one line, for a shape that is none: a size below 1 (0 where the field says what it means), heads that
  /// do not divide, a number that is not finite, a value that its enumeration does not have.
  void check() const;

  /// A config.json of transformers' GPT-2, Llama, Mistral, Qwen 2 or Qwen 3, or what `to_json` writes; `name` opens the
  /// error texts.
  /// Errors   FormatError for text that is no JSON; ValueError names a field that is missing, of another kind or asks
  ///          for what is not here (another model_type, activation or kind of rotary scaling, windows that differ from
  ///          layer to layer)
  static ModelConfig from_json(const std::string& text, const std::string& name = "config.json");
  /// As transformers reads it where it has the shape (model_type gpt2, llama, mistral, qwen2 or qwen3); other shapes
  /// have the model_type "attn" and the names of this struct. ValueError as `check`.
  std::string to_json(Dtype dtype = Dtype::f32) const;
  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

/// Keys and values of every layer for some sequences: with them the next token costs one token's work. A call that
/// fails leaves them as they were. It moves, and is not copied, as KvCache.
///
/// Threads   as KvCache
class ATTN_API ModelCache {
 public:
  /// Room for `sequences` sequences, each of which may grow up to the context.
  ModelCache(const ModelConfig& config, std::int64_t sequences, Dtype dtype = Dtype::f32,
             KvStorage storage = KvStorage::same);
  ModelCache(ModelCache&&) noexcept = default;
  ModelCache& operator=(ModelCache&&) noexcept = default;
  std::int64_t sequences() const { return static_cast<std::int64_t>(handles_.size()); }
  /// Tokens of a sequence so far; ValueError for a sequence that is not there, as below.
  std::int64_t length(std::int64_t sequence) const;
  /// Forgets the tokens from `length` on.
  void truncate(std::int64_t sequence, std::int64_t length);
  /// Sequence i becomes what sequence from[i] was, as a beam search goes on with the best beams: keys and values are
  /// shared until one of them grows, and copied then. ValueError unless there is one for each sequence.
  void reorder(const std::vector<std::int64_t>& from);

 private:
  friend class LanguageModel;
  const std::vector<KvSequence>& handles(std::int64_t sequence) const;
  std::vector<KvCache> layers_;
  std::vector<std::vector<KvSequence>> handles_;  // of each sequence, one a layer
};

/// A decoder-only transformer.
///
///   x = E[ids] (+ P[positions])      x += W_o attention(W_qkv norm(x))      x += mlp(norm(x))      logits = W_head
///   norm(x)
///
/// Shapes   ids i64 [B, T], T <= context -> logits [B, T, V]
/// Dtypes   f32, f64, bf16, f16: that of all weights, the activations and the logits
/// Names    embedding, positions, blocks.0.attention_norm, blocks.0.attention.qkv (q, k, v rows one under another),
///          blocks.0.attention.{q_norm, k_norm} (with qk_norm), blocks.0.attention.out, blocks.0.mlp_norm,
///          blocks.0.mlp.{gate, up, down}, norm, head (not when tied)
/// Draws    what nanoGPT's model draws from the same state of torch's generator: for GPT-2's shape the weights are
///          equal number for number. All weights N(0, 0.02), biases 0, norms 1; the last projection of each residual
///          branch N(0, 0.02 / sqrt(2 layers))
/// Bits     a row's logits depend neither on the batch, nor on the threads, nor on a cache
/// Source   Radford 2019 (GPT-2); Touvron 2023 (2302.13971, Llama); Jiang 2023 (2310.06825, Mistral); Yang 2024
///          (2407.10671, Qwen 2) and 2025 (2505.09388, Qwen 3)
class ATTN_API LanguageModel : public nn::Module {
 public:
  /// Draws from the global generator, or from `generator`.
  explicit LanguageModel(const ModelConfig& config, Dtype dtype = Dtype::f32, Generator* generator = nullptr);

  /// A folder with config.json and model.safetensors (or the parts that model.safetensors.index.json names), as
  /// transformers saves the families that `ModelConfig::from_json` reads: their names, GPT-2's transposed weights, tied
  /// heads. `dtype`: default that of the file; of tensors of several that of config.json (dtype or torch_dtype) if it
  /// holds each of them without loss, else the narrowest that does. The model comes in eval mode.
  /// Errors   IoError; FormatError, also where a checksum that `save` wrote is not that of the tensors; ValueError, one
  ///          line, that names every tensor that is missing, unexpected or of another shape
  static LanguageModel load(const std::string& folder, std::optional<Dtype> dtype = std::nullopt);
  /// Writes config.json and model.safetensors, each whole or not at all, the weights with a checksum, into a folder
  /// that is made when it is not there.
  void save(const std::string& folder) const;

  /// Logits of every position. ValueError for more than `context` tokens or an id that is not in the vocabulary.
  Tensor forward(const Tensor& ids) const;
  Tensor operator()(const Tensor& ids) const { return forward(ids); }
  /// The mean cross entropy of targets i64 [B, T] (-100: counts for nothing).
  Tensor loss(const Tensor& ids, const Tensor& targets) const;

  /// What the output layer is given, [B, T, C], and what it makes of it, [.., V].
  Tensor hidden(const Tensor& ids) const;
  Tensor logits(const Tensor& hidden) const;
  /// The same for ids that go on with sequences of a cache: row b with sequences[b] (default: b), which then holds them
  /// too. Without gradients and without dropout. The numbers are those of the whole sequence, bit for bit.
  /// Errors   ValueError for a sequence that is not there, or twice, or longer than the context then; DtypeError for a
  ///          cache of another dtype
  Tensor hidden(const Tensor& ids, ModelCache& cache, const std::vector<std::int64_t>& sequences = {}) const;

  /// What a layer's attention is given for these ids, beside the mask `config.mask()`.
  struct Heads {
    Tensor q, k, v;  ///< [B, Hq, T, D], [B, Hk, T, D] twice; normed and turned already where the model does so
  };
  Heads heads(const Tensor& ids, std::int64_t layer) const;

  const ModelConfig config;
  Dtype dtype() const;

  struct Parts;
  const Parts& parts() const { return *parts_; }

 private:
  LanguageModel(const ModelConfig& config, std::shared_ptr<const Parts> parts);  // weights are zeros
  template <typename Attend>
  Tensor run(const Tensor& ids, const Tensor& positions, Attend&& attend) const;
  const std::shared_ptr<const Parts> parts_;  // const: a move copies the handle, as of every module
};

}  // namespace attn
