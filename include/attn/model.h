// include/attn/model.h: defines decoder-only language models with the architectures of GPT-2, Llama, Mistral, Qwen,
// Gemma, Phi and SmolLM; loads, saves and runs them.
#pragma once
#include <attn/cache.h>
#include <attn/nn.h>
#include <attn/random.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

// The declarations of this header are in a separate library: link attn::model (which brings attn with it).
namespace attn {

class LanguageModel;
class Ranks;
class SharedColumns;

/// What one layer's attention sees, where layers differ: Gemma's have windows of their own, some of SmolLM 3's have no
/// positions.
struct LayerConfig {
  /// a token sees itself and the sliding_window - 1 tokens before it; 0: all before it
  std::int64_t sliding_window = 0;
  bool rotary = true;  ///< false: q and k are not rotated
  double rotary_theta = 10000;
  std::optional<nn::RotaryScaling> rotary_scaling = std::nullopt;
  friend bool operator==(const LayerConfig&, const LayerConfig&) = default;
};

/// The architecture of a model: everything except its weights. The defaults are GPT-2's.
struct ATTN_API ModelConfig {
  enum class Norm {
    layer_norm,
    rms_norm,
    rms_norm_plus_one,  ///< an RMS norm that multiplies by 1 + weight, in f32: Gemma's
  };
  enum class Positions { learned, rotary };
  enum class Activation {
    gelu,        ///< x/2 (1 + erf(x / sqrt 2))
    gelu_tanh,   ///< the tanh form of gelu, GPT-2's "gelu_new"
    swiglu,      ///< silu(x W_gate) * (x W_up). Source: Shazeer 2020 (2002.05202)
    geglu_tanh,  ///< gelu_tanh(x W_gate) * (x W_up): Gemma's
  };

  std::int64_t vocab_size = 50257;  ///< V
  std::int64_t context = 1024;      ///< maximum tokens of a sequence
  std::int64_t layers = 12;
  std::int64_t heads = 12;     ///< Hq
  std::int64_t kv_heads = 0;   ///< Hk, divides heads; 0: same as heads
  std::int64_t width = 768;    ///< C
  std::int64_t head_dim = 0;   ///< D; 0: width / heads
  std::int64_t mlp_width = 0;  ///< 0: 4 width
  Norm norm = Norm::layer_norm;
  double norm_eps = 1e-5;
  Positions positions = Positions::learned;
  double rotary_theta = 10000;
  std::optional<nn::RotaryScaling> rotary_scaling = std::nullopt;
  std::int64_t rotary_dim = 0;  ///< how many elements of a head are rotated, the first ones; 0: all
  Activation activation = Activation::gelu_tanh;
  bool attention_bias = true;  ///< whether the projections to q, k and v have a bias
  /// whether the output projection of attention has a bias; default: attention_bias
  std::optional<bool> attention_out_bias = std::nullopt;
  bool qk_norm = false;          ///< RMS norm of each head's q and k, before rotary embedding
  double query_scalar = 0;       ///< scores are q . k / sqrt(query_scalar); 0: head_dim
  double attention_softcap = 0;  ///< c: scores become c tanh(score / c); 0: off
  /// a token sees itself and the sliding_window - 1 tokens before it; 0: all before it
  std::int64_t sliding_window = 0;
  /// one for each layer, where they differ; sliding_window, rotary_theta and rotary_scaling are not used then. Empty:
  /// all layers use those three
  std::vector<LayerConfig> per_layer = {};
  bool post_norms = false;  ///< a norm of the output of attention and of the MLP too, before it is added
  bool mlp_bias = true;
  bool scaled_embedding = false;  ///< the embedding is multiplied by sqrt(width), rounded to the model's dtype
  double final_softcap = 0;       ///< c: logits become c tanh(logit / c); 0: off
  bool tied_head = true;          ///< the output layer shares the weights of the token embedding
  /// dropout probability in training, for the embeddings, the attention weights and the output of each residual branch
  double dropout = 0;
  std::vector<std::int64_t> end_tokens = {};  ///< ids that end a text

  std::int64_t key_value_heads() const { return kv_heads > 0 ? kv_heads : heads; }
  std::int64_t dim_of_head() const { return head_dim > 0 ? head_dim : heads > 0 ? width / heads : 0; }
  std::int64_t dim_of_mlp() const { return mlp_width > 0 ? mlp_width : 4 * width; }
  bool bias_of_out() const { return attention_out_bias.value_or(attention_bias); }
  std::int64_t rotated_dim() const { return rotary_dim > 0 ? rotary_dim : dim_of_head(); }
  double score_divisor() const { return query_scalar > 0 ? query_scalar : static_cast<double>(dim_of_head()); }
  /// Returns what a layer sees; with learned positions it has no rotary embedding.
  LayerConfig layer(std::int64_t n) const;
  /// Returns a layer's mask: a token sees itself and the tokens before it, all or those in the sliding window.
  Mask mask(std::int64_t layer) const;
  /// Returns whether texts of `a` and of `b` tokens have the same rotary frequencies in every layer. If not, the
  /// numbers of all tokens of the text change, and a cache of its first tokens cannot be continued.
  bool same_frequencies(std::int64_t a, std::int64_t b) const;
  /// Returns the number of weights; a tied table counts once. ValueError as `check`.
  std::int64_t parameters() const;

  /// 4 layers, 4 heads, width 128, context 64: minutes on a laptop.
  static ModelConfig nano(std::int64_t vocab_size);
  /// 6 layers, 6 heads, width 384, context 256.
  static ModelConfig baby(std::int64_t vocab_size);
  /// GPT-2 small: 12 layers, 12 heads, width 768, context 1024.
  static ModelConfig small(std::int64_t vocab_size = 50257);

  /// Throws ValueError, one line, for an invalid architecture: a size below 1 (fields that define 0 may be 0), heads
  /// that do not divide, a number that is not finite, an invalid enumerator.
  void check() const;

  /// Reads a config.json of transformers' GPT-2, Llama, Mistral, Qwen 2 and 3, Gemma 2 and 3 (of text), Phi-3 or
  /// SmolLM 3, or one that `to_json` wrote. Error texts begin with `name`.
  /// Errors   FormatError for text that is not JSON; ValueError names a field that is missing, has another type or has
  ///          a value that is not supported (another model_type, activation or kind of rotary scaling, experts)
  static ModelConfig from_json(const std::string& text, const std::string& name = "config.json");
  /// Writes transformers' form if transformers has this architecture (model_type gpt2, llama, mistral, qwen2, qwen3,
  /// gemma2, gemma3_text, phi3 or smollm3); otherwise model_type "attn" with the field names of this struct.
  /// ValueError as `check`.
  std::string to_json(Dtype dtype = Dtype::f32) const;
  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

/// How the ranks that share a model (ranks.h) share its cache.
enum class KvSharing {
  automatic,  ///< spans if there are more ranks than key heads, a context above 1,024, and no window; else heads
  heads,      ///< each rank has the key heads of its query heads; a head may be at several ranks
  spans,      ///< rank s mod R has keys 1024 s to 1024 s + 1023 of every head; not with a window
};

struct ModelCacheOptions {
  static constexpr std::int64_t most_sequences = 1 << 20;
  std::int64_t sequences = 1;  ///< 1 to most_sequences
  Dtype dtype = Dtype::f32;    ///< that of the model
  KvStorage storage = KvStorage::same;
  /// rows of a page: 16, 32, 64, 128 or 256; copies of a sequence share the pages of what they have in common. 0: each
  /// sequence has one block, which is contiguous and never shared for long
  std::int64_t page_rows = 0;
  /// Above 0: a token sees the `window` tokens up to itself and the first `sinks` tokens of its sequence, and the pages
  /// between them are freed (page_rows 0 then means 64). The model computes other numbers than without a window.
  /// Source   Xiao 2023 (2309.17453); positions stay those of the text, so the context still limits its length
  std::int64_t window = 0, sinks = 0;
  KvSharing sharing = KvSharing::automatic;  ///< a single process has the complete cache
};

/// The KV cache of every layer for some sequences: with it the next token costs the work of one token. It knows the
/// tokens whose keys and values it holds. A call that fails leaves it unchanged. Movable, not copyable, as KvCache.
///
/// Threads   as KvCache
class ATTN_API ModelCache {
 public:
  /// Makes room for `sequences` sequences, each of up to `context` tokens.
  ModelCache(const ModelConfig& config, std::int64_t sequences, Dtype dtype = Dtype::f32,
             KvStorage storage = KvStorage::same);
  ModelCache(const ModelConfig& config, const ModelCacheOptions& options);
  /// Of a model that ranks share: for what this rank has of the cache.
  ModelCache(const LanguageModel& model, const ModelCacheOptions& options);
  ModelCache(ModelCache&&) noexcept = default;
  ModelCache& operator=(ModelCache&&) noexcept = default;
  std::int64_t sequences() const { return static_cast<std::int64_t>(sequences_.size()); }
  const ModelCacheOptions& options() const { return options_; }
  /// Returns the tokens of a sequence so far. ValueError for a sequence that does not exist, here and below.
  std::int64_t length(std::int64_t sequence) const;
  /// Returns those tokens.
  const std::vector<std::int64_t>& tokens(std::int64_t sequence) const;
  /// Returns how many tokens every layer holds in memory; fewer than `length` with a window, and with a cache by spans
  /// (KvSharing).
  std::int64_t held(std::int64_t sequence) const;
  /// Returns whether ranks share the cache by spans.
  bool by_spans() const { return spans_ != nullptr; }
  /// Returns the bytes of memory for keys and values, all layers together.
  std::int64_t bytes() const;
  /// Removes the tokens from position `length` on. ValueError if tokens that the next one would see in its window have
  /// been freed.
  void truncate(std::int64_t sequence, std::int64_t length);
  /// Removes what is not the beginning of `ids`, and returns how many tokens are left: those that need not be computed
  /// again. 0 if the window of the next token has been freed.
  std::int64_t keep_common(std::int64_t sequence, std::span<const std::int64_t> ids);
  /// Sequence i becomes a copy of what sequence from[i] was, as beam search continues with the best beams. The copies
  /// share pages until one of them grows; the shared page is copied then. ValueError unless `from` has one entry per
  /// sequence.
  void reorder(const std::vector<std::int64_t>& from);

 private:
  friend class LanguageModel;
  friend class EncoderDecoder;
  friend class Reader;
  struct Sequence {
    std::vector<KvSequence> handles;  // one in each layer's cache
    std::vector<std::int64_t> tokens;
  };
  const Sequence& at(std::int64_t sequence) const;
  Sequence& at(std::int64_t sequence) { return const_cast<Sequence&>(std::as_const(*this).at(sequence)); }
  /// Returns the mask of a call: what the model's and the cache's windows let a token see.
  Mask mask(const Mask& of_model) const;
  bool can_truncate(std::int64_t sequence, std::int64_t length) const;
  /// Frees the pages that no token from here on sees.
  void free_pages(std::int64_t sequence);
  /// Makes room for that many tokens a sequence, so that a cache without pages does not grow in steps.
  void reserve(std::int64_t tokens);
  ModelCache(const ModelConfig& config, const ModelCacheOptions& options, std::shared_ptr<const SharedColumns> spans);
  /// Returns how many of the first `length` keys of a sequence this rank has.
  std::int64_t own_rows(std::int64_t length) const;
  ModelCacheOptions options_;
  std::vector<KvCache> layers_;
  std::vector<Sequence> sequences_;
  std::shared_ptr<const SharedColumns> spans_;  // the ranks that share the cache by spans; null: none
};

/// A decoder-only transformer.
///
///   x = E[ids] (+ P[positions])      x += W_o attention(W_qkv norm(x))      x += mlp(norm(x))
///   logits = W_head norm(x)
///
/// With post_norms norm(W_o ...) and norm(mlp(...)) are added.
///
/// Shapes   ids i64 [B, T], T <= context -> logits [B, T, V]
/// Dtypes   f32, f64, bf16, f16: that of all weights, the activations and the logits
/// Names    embedding, positions, blocks.0.attention_norm, blocks.0.attention.qkv (q, k, v rows one under another),
///          blocks.0.attention.{q_norm, k_norm} (with qk_norm), blocks.0.attention.out, blocks.0.mlp_norm,
///          blocks.0.mlp.{gate, up, down}, blocks.0.{attention_post_norm, mlp_post_norm} (with post_norms), norm,
///          head (not when tied)
/// Draws    the same random numbers as nanoGPT's model from the same state of torch's generator: for GPT-2's
///          architecture the weights are identical. All weights N(0, 0.02), biases 0, norms 1; the last projection of
///          each residual branch N(0, 0.02 / sqrt(2 layers))
/// Bits     a row's logits do not depend on the batch, the threads or the use of a cache (dynamic and longrope
///          scalings: they depend on the length of the text)
/// Source   Radford 2019 (GPT-2); Touvron 2023 (2302.13971, Llama); Jiang 2023 (2310.06825, Mistral); Yang 2024
///          (2407.10671, Qwen 2) and 2025 (2505.09388, Qwen 3); Gemma Team 2024 (2408.00118, Gemma 2) and 2025
///          (2503.19786, Gemma 3); Abdin 2024 (2404.14219, Phi-3)
class ATTN_API LanguageModel : public nn::Module {
 public:
  /// Draws the weights from `generator`; null: from the global generator.
  explicit LanguageModel(const ModelConfig& config, Dtype dtype = Dtype::f32, Generator* generator = nullptr);

  /// Loads a folder with config.json and model.safetensors (or, without it, each tensor from the part that
  /// model.safetensors.index.json names), as transformers saves the architectures that `ModelConfig::from_json` reads:
  /// with transformers' names, GPT-2's transposed weights, and tied heads, of which the file may have either table.
  /// Buffers of older files (masks, frequencies) are not read and may have any dtype. `dtype`: by default that of the
  /// file. If its tensors have several dtypes: that of config.json (dtype or torch_dtype) if it holds each of them
  /// without loss, else the narrowest dtype that does.
  /// The loaded model is in eval mode.
  /// Or loads a GGUF file (of one in parts, the first) of the architectures of docs/model.md. The numbers
  /// are of `dtype`, by default f16 or bf16 if all tensors have that type, else f32. In f32 the matrices stay blocks of
  /// the mapped file, which are decoded in registers; in bf16 they do if the processor has a bf16 dot product and all
  /// of them are in blocks or bf16. Otherwise, and without vector kernels, they are decoded. Results are the same to
  /// the bit. The file must not change while it is in use.
  /// Errors   IoError; FormatError, also if the tensors do not match the checksum that `save` wrote; DtypeError
  ///          names a tensor of a dtype that attn does not have; ValueError, one line, names every tensor that is
  ///          missing, unexpected or of another shape
  static LanguageModel load(const std::string& path, std::optional<Dtype> dtype = std::nullopt);
  /// The same, collectively (<attn/ranks.h>): each rank maps the file and keeps its output columns of each matrix,
  /// about 1/R of the weights, and its heads of the KV cache. Every call that computes is then collective, with the
  /// same ids, and returns the same bits as one process, at every rank. Such a model is not trained, saved or
  /// explained. The file must not change while it is loaded.
  /// Errors   as above, as a RankError at every rank; also when the ranks have other files, more than the model has
  ///          heads, or in bf16 other kinds of product
  static LanguageModel load(const std::string& path, std::optional<Dtype> dtype, const Ranks& ranks);
  /// Returns whether ranks share the model.
  bool is_shared() const;
  /// Writes config.json and model.safetensors, each whole or not at all, the weights with a checksum. Creates the
  /// folder if needed.
  void save(const std::string& folder) const;
  /// Returns whether the matrices are blocks of a GGUF file. Such a model cannot be trained (ValueError), and has only
  /// the vectors among its parameters.
  bool is_stored() const;
  /// Returns this model with all weights as tensors: itself, or a new one with the decoded weights.
  LanguageModel decoded() const;

  /// Returns the logits of every position. ValueError for more than `context` tokens or an id outside the vocabulary.
  Tensor forward(const Tensor& ids) const;
  Tensor operator()(const Tensor& ids) const { return forward(ids); }
  /// Returns the mean cross entropy of targets i64 [B, T] (targets of -100 are left out).
  Tensor loss(const Tensor& ids, const Tensor& targets) const;
  /// Returns log p(targets[b, t] | ids[b, ..t]), [B, T] in f32 (f64 for f64), with gradients; 0 for targets of -100.
  /// With `cu_seqlens` [N + 1] the ids [total] are sequences one after another (docs/packed.md), the result is [total].
  /// Bits     those that `generate` returns for its texts (GenerateOptions::log_probabilities)
  Tensor log_probabilities(const Tensor& ids, const Tensor& targets, const Tensor& cu_seqlens = {}) const;

  /// Return the input of the output layer, [B, T, C], and the output layer applied to it, [.., V].
  Tensor hidden(const Tensor& ids) const;
  Tensor logits(const Tensor& hidden) const;
  /// Computes hidden() of sequences one after another: ids [total] -> [total, C]; each sequence has at most `context`
  /// tokens. cu_seqlens as in AttentionOptions. The bits are those of each sequence alone.
  Tensor hidden_packed(const Tensor& ids, const Tensor& cu_seqlens) const;
  /// Computes hidden() for ids that continue sequences of a cache: row b continues sequences[b] (default: b), and the
  /// cache then holds these ids too. Nothing is recorded for gradients, and dropout is off. The bits are those of
  /// computing the whole sequence.
  /// Errors   ValueError for a sequence that does not exist, is given twice, or would be longer than the context, or
  ///          whose cached tokens have other rotary frequencies (ModelConfig::same_frequencies): `truncate` it to 0 and
  ///          give all tokens; DtypeError for a cache of another dtype
  Tensor hidden(const Tensor& ids, ModelCache& cache, const std::vector<std::int64_t>& sequences = {}) const;

  /// The q, k and v of one layer's attention for given ids; the mask is `config.mask(layer)`.
  struct Heads {
    /// [B, Hq, T, D], [B, Hk, T, D] twice; after the norm and the rotary embedding, if the model has them
    Tensor q, k, v;
  };
  /// ValueError for a model that ranks share.
  Heads heads(const Tensor& ids, std::int64_t layer) const;

  const ModelConfig config;
  Dtype dtype() const;

  struct Parts;
  const Parts& parts() const { return *parts_; }

 private:
  LanguageModel(const ModelConfig& config, std::shared_ptr<const Parts> parts);  // weights are zeros
  /// Loads what this rank has; null: all.
  static LanguageModel load(const std::string& path, std::optional<Dtype> dtype,
                            std::shared_ptr<const SharedColumns> ranks);
  template <typename Attend>
  Tensor run(const Tensor& ids, const Tensor& positions, const std::vector<std::int64_t>& tokens,
             const Attend& attend) const;
  Tensor hidden_of(const Tensor& ids) const;
  Tensor hidden_of(const Tensor& ids, ModelCache& cache, const std::vector<std::int64_t>& rows) const;
  Tensor hidden_of_packed(const Tensor& ids, const Tensor& cu_seqlens) const;
  const std::shared_ptr<const Parts> parts_;  // const: moving copies the handle, as in every module
};

}  // namespace attn
