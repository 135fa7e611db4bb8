// src/model/encoder_decoder/tokenizers.h: declares the tokenizers of an encoder-decoder's folder: for source and target
// texts, with languages.
#pragma once
#include <attn/translation.h>

#include <memory>
#include <string>
#include <vector>

namespace attn {

class PairTokenizer {
 public:
  using Ids = std::vector<std::int64_t>;
  virtual ~PairTokenizer() = default;
  /// Returns what the encoder reads. `language`: of the source; empty: that of the files.
  virtual Ids encode(const std::string& text, const std::string& language) const = 0;
  /// Returns the ids that the decoder should generate, without start and end token. `language`: of the target; empty:
  /// that of the files.
  virtual Ids encode_target(const std::string& text, const std::string& language) const = 0;
  virtual std::string decode(const Ids& ids) const = 0;
  /// Returns the bytes of a token of a source text, or of a target text, as a reader sees it.
  virtual std::string shown(std::int64_t id, bool of_target) const = 0;
  virtual std::vector<std::string> languages() const { return {}; }
  /// Sets what the decoder begins with for a target language that `languages` has.
  virtual void begin_with(const std::string&, TranslateOptions&) const {}
};

/// Reads the tokenizer of a folder.
std::shared_ptr<const PairTokenizer> read_pair_tokenizer(const std::string& folder,
                                                         EncoderDecoderConfig::Family family);

/// That of Marian: source.spm, target.spm, vocab.json (and target_vocab.json).
std::shared_ptr<const PairTokenizer> read_marian_tokenizer(const std::string& folder);

}  // namespace attn
