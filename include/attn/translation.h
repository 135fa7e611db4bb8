// include/attn/translation.h: translates with an encoder-decoder: greedy, sampling and beam search, with ids and with
// texts.
#pragma once
#include <attn/encoder_decoder.h>
#include <attn/generate.h>
#include <attn/tokenizer.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

// The declarations of this header are in the library attn::model, as those of model.h.
namespace attn {

/// When beam search ends, if not at the maximum length.
enum class EarlyStopping {
  no,     ///< when the likeliest open beam, as long as it is, scores below every finished one
  yes,    ///< as soon as `beams` texts are finished
  never,  ///< when no open beam could score better, however long it becomes
};

/// How texts are generated, with the meanings and, except `sample`, the defaults of transformers' generate.
struct ATTN_API TranslateOptions {
  std::int64_t tokens = 20;     ///< at most this many new tokens, the end token included (max_length - 1)
  std::int64_t min_tokens = 0;  ///< no end token before there are that many (min_length - 1)
  std::int64_t beams = 1;       ///< num_beams; 1: greedy, or sampling
  std::int64_t returned = 1;    ///< texts of each source (num_return_sequences): the best beams, or samples
  /// A finished text's score is the sum of its log-probabilities / n^length_penalty, with n its tokens, the end token
  /// included.
  double length_penalty = 1;
  EarlyStopping early_stopping = EarlyStopping::no;
  /// With one beam: temperature 0, greedy, unless it is set. Order and meaning as for a LanguageModel.
  SampleOptions sample = {.temperature = 0};
  std::uint64_t seed = 0;  ///< sample n of a source is drawn with `seed` + n

  std::int64_t no_repeat_ngram = 0;                       ///< no n tokens occur twice in a row of n; 0: any may
  std::vector<std::vector<std::int64_t>> bad_words = {};  ///< sequences of tokens that are not generated
  std::vector<std::int64_t> suppressed = {}, begin_suppressed = {};  ///< tokens never generated; not as the first
  std::optional<std::int64_t> forced_begin = std::nullopt;           ///< the first token (forced_bos_token_id)
  std::vector<std::int64_t> forced_end = {};                         ///< the last token at the maximum length
  bool renormalize = false;  ///< beam search adds log-probabilities of what the options above leave
  std::optional<std::int64_t> start = std::nullopt;  ///< the token before the first (decoder_start_token_id)
  std::vector<std::int64_t> end_tokens = {};         ///< eos_token_id

  std::int64_t batch_tokens = 2048;  ///< sources are computed together until they have that many tokens
  /// Called before each pass of the model. An exception that it throws ends the call and is rethrown.
  std::function<void()> on_pass = {};

  /// Reads what the files of a folder say: generation_config.json, or, without it, config.json.
  /// Errors   ValueError names a setting that has another type or is not supported
  static TranslateOptions from_folder(const std::string& folder);
};

struct Translated {
  std::vector<std::int64_t> tokens;  ///< the new tokens, without start and end token
  Finish finish = Finish::length;    ///< length or end
  double score = 0;                  ///< as length_penalty says; with sampling, by the probabilities sampled from
};

/// Generates texts from sources given as ids: for each source `returned` texts, the best first.
///
/// Bits     the texts and scores of a source do not depend on the other sources, the batch or the threads
/// Errors   ValueError for a source without tokens, an id outside the vocabulary, options out of range
/// Source   Graves 2012 (1211.3711, beam search); Wu 2016 (1609.08144, length penalty)
ATTN_API std::vector<std::vector<Translated>> translate(const EncoderDecoder& model,
                                                        const std::vector<std::vector<std::int64_t>>& sources,
                                                        const TranslateOptions& options);

/// Returns whether a folder's config.json is that of an encoder-decoder that `Translator` reads. Throws nothing: false
/// for a file that is missing or damaged.
ATTN_API bool is_encoder_decoder(const std::string& folder);

struct TranslatedText : Translated {
  std::string text = {};
};

/// A model's folder with its tokenizers, its languages and its settings of generation.
class ATTN_API Translator {
 public:
  /// Loads a folder of transformers: config.json, model.safetensors (or parts), generation_config.json, and
  /// tokenizer.json or, of Marian, source.spm, target.spm and vocab.json, or, of T5 and others, a SentencePiece model
  /// alone.
  /// Errors   as EncoderDecoder::load and Tokenizer::load
  static Translator load(const std::string& folder, std::optional<Dtype> dtype = std::nullopt);

  /// Generates the translations of texts, or whatever the model was trained to output. `options`: by default
  /// `defaults`.
  /// Errors   ValueError, with the text's number, for one that the tokenizer cannot encode or that is too long
  std::vector<std::vector<TranslatedText>> translate(const std::vector<std::string>& texts,
                                                     const TranslateOptions& options) const;
  std::vector<std::vector<TranslatedText>> translate(const std::vector<std::string>& texts) const {
    return translate(texts, defaults);
  }
  /// Returns the ids that the encoder reads for a text, with the special tokens and, where the model has languages,
  /// that of the source.
  std::vector<std::int64_t> encode(const std::string& text) const;
  /// Returns the ids of a target text, without start and end token.
  std::vector<std::int64_t> encode_target(const std::string& text) const;
  std::string decode(const std::vector<std::int64_t>& ids) const;

  /// Sets the languages, such as "eng_Latn" (NLLB), "en_XX" (mBART) or "en" (M2M-100); empty: as the files say. A
  /// multilingual Marian model has its target language in the text (">>fra<< ...").
  /// Errors   ValueError for a language that the model does not have, or a model without languages
  void set_languages(const std::string& source, const std::string& target);
  std::vector<std::string> languages() const;  ///< those of the tokenizer; empty: none

  const EncoderDecoder model;
  TranslateOptions defaults;

  struct Parts;
  const Parts& parts() const { return *parts_; }

 private:
  Translator(EncoderDecoder loaded, std::shared_ptr<const Parts> parts);
  std::shared_ptr<const Parts> parts_;
  std::string source_, target_;
};

}  // namespace attn
