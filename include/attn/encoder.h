// include/attn/encoder.h: defines encoders of texts with the architectures of BERT, RoBERTa, MPNet, DistilBERT and
// ModernBERT: a text becomes a vector, a pair of texts a score.
#pragma once
#include <attn/nn.h>
#include <attn/tokenizer.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// The declarations of this header are in a separate library: link attn::model (which brings attn with it).
namespace attn {

/// The architecture of an encoder: everything except its weights. The defaults are BERT's.
struct ATTN_API EncoderConfig {
  enum class Family {
    bert,        ///< MiniLM, E5, BGE and GTE too
    roberta,     ///< XLM-RoBERTa and CamemBERT too: positions count from padding_id + 1
    mpnet,       ///< as RoBERTa; a bias by the distance, one table for all layers
    distilbert,  ///< BERT without segments
    modernbert,  ///< norms before each part, rotary positions, windows in most layers, GeGLU
  };
  enum class Activation {
    gelu,       ///< x/2 (1 + erf(x / sqrt 2))
    gelu_tanh,  ///< its tanh form
    relu,
    silu,
    tanh,
  };

  Family family = Family::bert;
  std::int64_t vocab_size = 30522;  ///< V
  std::int64_t positions = 512;     ///< rows of the table of positions; ModernBERT has no table: the maximum tokens
  std::int64_t layers = 12;
  std::int64_t heads = 12;   ///< H, divides width
  std::int64_t width = 768;  ///< C
  std::int64_t mlp_width = 3072;
  std::int64_t segments = 2;  ///< rows of the table of segments (token types); 0: no table
  std::int64_t padding_id = 0;
  Activation activation = Activation::gelu;
  double norm_eps = 1e-12;
  std::int64_t relative_buckets = 0;  ///< rows of MPNet's table of biases; 0: no table
  bool attention_bias = true;         ///< whether the linear maps of attention have a bias
  bool mlp_bias = true;
  bool norm_bias = true;
  /// ModernBERT: the tokens that a layer sees on each side, one number for each layer; 0: all tokens
  std::vector<std::int64_t> windows = {};
  double rotary_theta = 160000, local_rotary_theta = 10000;  ///< ModernBERT: of layers without, with a window
  /// The scores of a pair that a model for sequence classification gives (a cross-encoder: 1); 0: no such layer
  std::int64_t labels = 0;
  // of ModernBERT's layers for them
  bool classifier_mean = false;  ///< they read the mean of a text's rows; false: its first row
  bool classifier_bias = false;
  Activation classifier_activation = Activation::tanh;

  /// Returns the maximum tokens of a text.
  std::int64_t context() const;

  /// Throws ValueError, one line, for an invalid architecture: a size below 1, heads that do not divide, a number that
  /// is not finite, an invalid enumerator.
  void check() const;
  /// Reads a config.json of transformers' BERT, RoBERTa, XLM-RoBERTa, CamemBERT, MPNet, DistilBERT or ModernBERT. Error
  /// texts begin with `name`.
  /// Errors   FormatError for text that is not JSON; ValueError names a field that is missing, has another type or has
  ///          a value that is not supported (another model_type, activation or kind of positions)
  static EncoderConfig from_json(const std::string& text, const std::string& name = "config.json");
  friend bool operator==(const EncoderConfig&, const EncoderConfig&) = default;
};

/// How the rows of a text become its vector, as sentence-transformers' modules describe it.
struct EncoderPooling {
  enum class Kind {
    cls,            ///< the first row
    max,            ///< the largest number of each column
    mean,           ///< the sum of the rows / n
    mean_sqrt_len,  ///< the sum / sqrt n
    weightedmean,   ///< the sum of i x_i / the sum of i, i from 1
    lasttoken,      ///< the last row
  };
  std::vector<Kind> kinds = {Kind::mean};  ///< several are joined
  bool normalize = false;                  ///< the vector is divided by its length (at least 1e-12)
  bool include_prompt = true;              ///< false: the rows of a prompt take no part, except in cls
  friend bool operator==(const EncoderPooling&, const EncoderPooling&) = default;
};

/// Prompts: texts that a model was trained to read before each text. config_sentence_transformers.json names them:
/// "query", "document".
struct EncoderPrompts {
  std::map<std::string, std::string> texts;
  std::string default_name;  ///< name of the default prompt; empty: none
  friend bool operator==(const EncoderPrompts&, const EncoderPrompts&) = default;
};

struct EmbedOptions {
  std::string prompt;                ///< is put before each text
  std::int64_t batch_tokens = 2048;  ///< texts are computed together until they have that many tokens
  /// Called before each batch, by the calling thread. An exception that it throws ends the call and is rethrown.
  std::function<void()> on_batch = {};
};

/// An encoder of texts.
///
///   x = norm(E[ids] + S[segments] + P[positions])
///   x = norm(x + W_o attention(W_qkv x))      x = norm(x + W_down act(W_up x))      in every layer
///  ModernBERT: x += W_o attention(W_qkv norm(x)), x += W_down (act(a) b) with (a, b) = W_up norm(x), and a norm last.
/// Every token sees all tokens of its text (in a layer with a window: those near it). The rows of all texts are packed
/// without padding (docs/packed.md).
///
/// Dtypes   f32, f64, bf16, f16: that of all weights and rows; vectors and scores are f32 (f64 for f64)
/// Bits     a text's rows, vector and scores do not depend on the other texts of a call, their number or order, the
///          threads or the processor (bf16: the processors with its dot product are one kind, those without another)
/// Source   Devlin 2018 (1810.04805, BERT); Liu 2019 (1907.11692, RoBERTa); Conneau 2019 (1911.02116, XLM-R); Song 2020
///          (2004.09297, MPNet); Sanh 2019 (1910.01108, DistilBERT); Warner 2024 (2412.13663, ModernBERT); Reimers 2019
///          (1908.10084, sentence-transformers)
class ATTN_API TextEncoder : public nn::Module {
 public:
  /// Loads a folder as transformers and sentence-transformers store it: config.json, model.safetensors (or the parts
  /// that model.safetensors.index.json names); modules.json with a Transformer, a Pooling, Dense and Normalize, their
  /// folders, and sentence_bert_config.json, if they are there. Without modules.json the pooling is the mean. Or loads
  /// a GGUF file with the architecture bert, whose matrices stay as the file has them (docs/encoders.md). `dtype`: by
  /// default that of the file. The loaded encoder is in eval mode.
  /// Errors   IoError; FormatError; ValueError, one line, names what is missing or unexpected, has another shape or is
  ///          not supported
  static TextEncoder load(const std::string& folder, std::optional<Dtype> dtype = std::nullopt);

  /// Returns the vectors of texts, [N, dim()], each cut to max_tokens. As in sentence-transformers white space around a
  /// text (with its prompt) is removed. Nothing is recorded for gradients.
  /// Errors   ValueError for a folder without tokenizer.json, and as Tokenizer::encode_text, with the text's number
  Tensor embed(const std::vector<std::string>& texts, const EmbedOptions& options = {}) const;
  /// Returns the scores of pairs of texts, [N, labels], as sentence-transformers' CrossEncoder gives them: the logits,
  /// with a single label their sigmoid, unless the model names the identity. The longer text of a pair is cut first.
  /// Errors   as embed; ValueError for a model without scores (not for sequence classification)
  Tensor scores(const std::vector<std::pair<std::string, std::string>>& pairs, const EmbedOptions& options = {}) const;
  /// Returns the text of a prompt by its name; without a name the default one, "" if there is none. ValueError names
  /// the prompts of the model.
  const std::string& prompt(const std::string& name) const;
  const Tokenizer& tokenizer() const;  ///< ValueError for a folder without tokenizer.json
  bool has_tokenizer() const;

  /// Returns the rows of packed texts: ids, segments [total] (i64 or i32; segments may be undefined: 0) -> [total, C].
  /// cu_seqlens as in AttentionOptions.
  /// Errors   ValueError for a text without tokens or with more than config.context(), an id or a segment out of range
  Tensor hidden(const Tensor& ids, const Tensor& cu_seqlens, const Tensor& segments = {}) const;
  /// Returns the vectors of texts whose rows `hidden` returned: [N, dim()]. `prompts`: the tokens of each text's
  /// prompt, which `pooling.include_prompt` may leave out; empty: no text has one.
  Tensor pooled(const Tensor& hidden, const Tensor& cu_seqlens, const std::vector<std::int64_t>& prompts = {}) const;
  /// Returns the scores of texts whose rows `hidden` returned, before the activation: [N, labels]. ValueError for a
  /// model without them.
  Tensor logits(const Tensor& hidden, const Tensor& cu_seqlens) const;

  /// Returns the size of a vector.
  std::int64_t dim() const;
  Dtype dtype() const;

  const EncoderConfig config;
  const EncoderPooling pooling;
  /// The maximum tokens of a text, special ones included: max_seq_length of sentence_bert_config.json, at most
  /// config.context().
  const std::int64_t max_tokens;
  const EncoderPrompts prompts;

  struct Parts;

 private:
  struct Folder;
  TextEncoder(const EncoderConfig& config, const Folder& folder, std::shared_ptr<const Parts> parts);
  const std::shared_ptr<const Parts> parts_;  // const: moving copies the handle, as in every module
};

}  // namespace attn
