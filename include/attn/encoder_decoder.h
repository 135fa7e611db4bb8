// include/attn/encoder_decoder.h: defines encoder-decoders with the architectures of T5, BART, mBART, Marian, NLLB and
// PEGASUS: a decoder generates a text while it attends to the rows that an encoder made of another one.
#pragma once
#include <attn/encoder.h>
#include <attn/model.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

// The declarations of this header are in a separate library: link attn::model (which brings attn with it).
namespace attn {

/// The architecture of an encoder-decoder: everything except its weights. The defaults are BART's.
struct ATTN_API EncoderDecoderConfig {
  enum class Family {
    t5,       ///< T5, FLAN-T5, mT5: RMS norms before each part, biases by distance, scores that are not scaled
    bart,     ///< norms after each part, learned positions
    mbart,    ///< norms before each part and one last, learned positions
    marian,   ///< norms after each part, sine and cosine positions
    m2m_100,  ///< M2M-100, NLLB: norms before each part and one last, sine and cosine positions from padding_id + 1
    pegasus,  ///< norms before each part and one last, sine and cosine positions
  };
  using Activation = EncoderConfig::Activation;

  Family family = Family::bart;
  std::int64_t vocab_size = 50265;          ///< of the source texts
  std::int64_t decoder_vocab_size = 50265;  ///< V, of the target texts; different only with separate tables
  std::int64_t positions = 1024;            ///< maximum tokens of a text; 0: no limit (T5)
  std::int64_t encoder_layers = 12, decoder_layers = 12;
  std::int64_t encoder_heads = 16, decoder_heads = 16;
  std::int64_t width = 1024;  ///< C
  std::int64_t head_dim = 0;  ///< D; 0: width / heads. Only T5's may be another one
  std::int64_t encoder_mlp_width = 4096, decoder_mlp_width = 4096;
  Activation activation = Activation::gelu;
  bool gated = false;  ///< the MLP is W_down (act(a) b) with (a, b) = W_up x: T5 1.1
  double norm_eps = 1e-5;
  std::int64_t relative_buckets = 32, relative_distance = 128;  ///< of T5's biases by distance
  bool scaled_embedding = false;                                ///< embeddings are multiplied by sqrt(C)
  bool scaled_output = false;                                   ///< the last rows are multiplied by 1 / sqrt(C): T5 1.0
  bool shared_embedding = true;                                 ///< encoder and decoder have one table
  bool tied_head = true;                                        ///< the output layer has the decoder's table
  std::int64_t padding_id = 1;
  /// dropout probability in training, for the embeddings, the attention weights and the output of each residual branch
  double dropout = 0;

  std::int64_t dim_of_head() const { return head_dim > 0 ? head_dim : encoder_heads > 0 ? width / encoder_heads : 0; }
  std::int64_t dim_of_decoder_head() const {
    return head_dim > 0 ? head_dim : decoder_heads > 0 ? width / decoder_heads : 0;
  }
  /// Returns whether there is a norm before each part, and one last.
  bool norms_first() const { return family != Family::bart && family != Family::marian; }

  /// Shapes to train from scratch, Marian's with one table and relu: 2 + 2 layers of width 128 with 4 heads, 4 + 4 of
  /// 256 with 8, 6 + 6 of 512 with 8 (the base model of Vaswani 2017). Dropout 0.1; the padding token is the last.
  static EncoderDecoderConfig nano(std::int64_t vocab_size);
  static EncoderDecoderConfig baby(std::int64_t vocab_size);
  static EncoderDecoderConfig small(std::int64_t vocab_size);

  /// Throws ValueError, one line, for an invalid architecture: a size below 1, heads that do not divide, a number that
  /// is not finite, an invalid enumerator.
  void check() const;
  /// Reads a config.json of transformers' T5, mT5, BART, mBART, Marian, M2M-100 (NLLB) or PEGASUS. Error texts begin
  /// with `name`.
  /// Errors   FormatError for text that is not JSON; ValueError names a field that is missing, has another type or has
  ///          a value that is not supported
  static EncoderDecoderConfig from_json(const std::string& text, const std::string& name = "config.json");
  /// Writes a config.json that transformers reads too. `dtype` is that of the weights.
  std::string to_json(Dtype dtype = Dtype::f32) const;
  friend bool operator==(const EncoderDecoderConfig&, const EncoderDecoderConfig&) = default;
};

/// The rows of source texts, and the keys and values that the decoder's layers make of them, computed once.
struct Memory {
  Tensor hidden;      ///< [total, C]: the rows of all texts, one after another
  Tensor cu_seqlens;  ///< i64 [N + 1]: text n has the rows cu_seqlens[n] ... cu_seqlens[n + 1] - 1
  /// one pair for each layer of the decoder: [1, H, total, D]
  std::vector<Tensor> keys = {}, values = {};
  std::int64_t texts() const { return cu_seqlens.size(0) - 1; }
};

/// An encoder-decoder.
///
///   m = encoder(source)     x += W_o attention(W_qkv norm(x)), x += mlp(norm(x)); every token sees all of its text
///   y = decoder(target, m)  x += W_o attention(W_qkv norm(x)) (causal)
///                           x += W_c attention(W_q norm(x), W_kv m), x += mlp(norm(x))
///   logits = W_head y + b
///
/// BART and Marian: x = norm(x + ...) instead. T5's scores have a bias by the distance of the two tokens and are not
/// scaled by 1 / sqrt(D).
///
/// Shapes   texts are packed without padding: ids i64 or i32 [total], cu_seqlens as in AttentionOptions;
///          the target texts are as many as the source texts, of any lengths -> logits [total, V]
/// Dtypes   f32, f64, bf16, f16: that of all weights, rows and logits
/// Names    embedding, decoder_embedding (if separate), {encoder, decoder}.{positions, embedding_norm, relative, norm}
///          (if the family has them), {encoder, decoder}.layers.0.{attention_norm, qkv, out, mlp_norm, up, down},
///          decoder.layers.0.{cross_norm, cross_q, cross_kv, cross_out}, head (not when tied), head_bias
/// Bits     a row does not depend on the other texts of a call, their number or order, the threads, or whether the
///          target was computed in one call or with a cache
/// Source   Vaswani 2017 (1706.03762); Raffel 2019 (1910.10683, T5); Lewis 2019 (1910.13461, BART); Liu 2020
///          (2001.08210, mBART); Junczys-Dowmunt 2018 (1804.00344, Marian); Fan 2020 (2010.11125, M2M-100); NLLB Team
///          2022 (2207.04672); Zhang 2019 (1912.08777, PEGASUS)
class ATTN_API EncoderDecoder : public nn::Module {
 public:
  /// Draws the weights from `generator`; null: from the global generator. Matrices and tables N(0, 0.02), the padding
  /// token's row 0, biases 0, norms 1; T5's as transformers draws them.
  explicit EncoderDecoder(const EncoderDecoderConfig& config, Dtype dtype = Dtype::f32, Generator* generator = nullptr);

  /// Loads a folder with config.json and model.safetensors (or the parts that model.safetensors.index.json names), as
  /// transformers saves it. Which tables are one is read from the file, as transformers does it: tables that are not
  /// there, or are equal, are the shared one. `dtype`: by default that of the file. The loaded model is in eval mode.
  /// Errors   IoError; FormatError; ValueError, one line, names what is missing or unexpected, has another shape or is
  ///          not supported
  static EncoderDecoder load(const std::string& folder, std::optional<Dtype> dtype = std::nullopt);
  /// Writes model.safetensors, generation_config.json and config.json, each whole or not at all, under transformers'
  /// names.
  void save(const std::string& folder) const;

  /// Returns the rows of source texts: [total, C]. ValueError for a text without tokens or with more than
  /// config.positions, an id outside the vocabulary.
  Tensor encode(const Tensor& ids, const Tensor& cu_seqlens) const;
  /// Computes the keys and values of the decoder's layers from rows that `encode` returned.
  Memory memory(const Tensor& hidden, const Tensor& cu_seqlens) const;
  /// Returns the input of the output layer for target texts: [total, C]. Target text n attends to text n of the memory.
  Tensor hidden(const Tensor& ids, const Tensor& cu_seqlens, const Memory& memory) const;
  /// The same for ids [B, T] that continue sequences of a cache, which `cache` made: row b continues sequences[b] and
  /// attends to text sources[b] of the memory, and the cache then holds these ids too: [B, T, C]. Nothing is recorded
  /// for gradients, and dropout is off. `sources` must not descend.
  /// Errors   ValueError for a sequence or a text that does not exist, a sequence that is given twice or gets too long
  Tensor hidden(const Tensor& ids, ModelCache& cache, const std::vector<std::int64_t>& sequences, const Memory& memory,
                const std::vector<std::int64_t>& sources) const;
  /// Makes a cache for that many target texts of up to `tokens` tokens; options.sequences and dtype are set here.
  ModelCache cache(std::int64_t sequences, std::int64_t tokens, ModelCacheOptions options = {}) const;
  /// Applies the output layer: [.., C] -> [.., V].
  Tensor logits(const Tensor& hidden) const;

  /// Returns the logits of each target token's next token, [total, V]. The target ids begin with the token that begins
  /// a text.
  Tensor forward(const Tensor& ids, const Tensor& cu_seqlens, const Tensor& target_ids,
                 const Tensor& target_cu_seqlens) const;
  /// Returns log p(targets[i] | source, target_ids up to i), [total] in f32 (f64 for f64), with gradients; 0 for
  /// targets of -100.
  Tensor log_probabilities(const Tensor& ids, const Tensor& cu_seqlens, const Tensor& target_ids,
                           const Tensor& target_cu_seqlens, const Tensor& targets) const;
  /// Returns the mean cross entropy of targets i64 [total] (targets of -100 are left out).
  Tensor loss(const Tensor& ids, const Tensor& cu_seqlens, const Tensor& target_ids, const Tensor& target_cu_seqlens,
              const Tensor& targets) const;

  /// The q, k and v of one layer's cross-attention of one target text over text 0 of the memory: q [1, H, Tq, D], k, v
  /// [1, H, Tk, D]; their scores are q . k * scale.
  struct CrossHeads {
    Tensor q, k, v;
    double scale = 1;
  };
  CrossHeads cross_heads(const Tensor& ids, const Memory& memory, std::int64_t layer) const;

  const EncoderDecoderConfig config;
  Dtype dtype() const;

  /// The text of generation_config.json that `save` writes: that of the folder that was loaded; of a drawn model the
  /// ids with which texts of its family begin and end.
  std::string generation_config;

  struct Parts;

 private:
  EncoderDecoder(const EncoderDecoderConfig& config, std::shared_ptr<const Parts> parts);  // weights are zeros
  const std::shared_ptr<const Parts> parts_;  // const: moving copies the handle, as in every module
};

}  // namespace attn
