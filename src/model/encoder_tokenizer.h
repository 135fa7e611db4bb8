// src/model/encoder_tokenizer.h: declares what the tokenizers of encoders have beyond those of language models: lists
// of steps before and after the model, and the models WordPiece and Unigram.
#pragma once
#include "model/tokenizer_fields.h"
#include "text/tokenizer/rewritten.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace attn {

class EncoderTokenizer {
 public:
  virtual ~EncoderTokenizer() = default;
  /// Applies the normalizer. `first`: the text is the beginning of what is encoded.
  virtual text::Rewritten normalized(std::string_view text, bool first) const = 0;
  /// Splits a part of a normalized text and adds the ids of its pieces.
  virtual void encode(const text::Rewritten& part, std::vector<std::int64_t>& ids) const = 0;
  /// Returns the text that the decoder makes of tokens.
  virtual std::string decoded(std::vector<std::string> tokens) const = 0;
  /// Returns what the decoder makes of a token that is not the first.
  virtual std::string bytes_of(const std::string& token) const = 0;
  /// Returns whether the decoder leaves out the space before the first token.
  virtual bool strips_space() const = 0;

  /// Return what to_json() writes: an object of normalizer, pre_tokenizer and decoder, as in the file; the model.
  virtual nlohmann::ordered_json steps() const = 0;
  virtual nlohmann::ordered_json model() const = 0;
};

/// Reads the model WordPiece or Unigram with its steps; its tokens go to `names`, by id.
std::shared_ptr<const EncoderTokenizer> read_encoder_tokenizer(const TokenizerFields& file,
                                                               std::vector<std::string>& names);

}  // namespace attn
