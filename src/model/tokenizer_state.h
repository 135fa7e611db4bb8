// src/model/tokenizer_state.h: declares the state of a tokenizer, which encoding, decoding, reading and writing share.
#pragma once
#include <attn/tokenizer.h>

#include "model/added_tokens.h"
#include "model/encoder_tokenizer.h"
#include "model/tokenizer_template.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/changes.h"
#include "text/tokenizer/cut.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/text_index.h"

#include <array>
#include <string>
#include <vector>

namespace attn {

using text::Prefix;

/// Returns whether encode() goes through the steps of an EncoderTokenizer.
inline bool is_of_encoder(Tokenizer::Kind kind) {
  return kind == Tokenizer::Kind::wordpiece || kind == Tokenizer::Kind::unigram;
}

struct Tokenizer::State {
  Kind kind = Kind::characters;
  // bpe: tokens are characters, or bytes of characters without a token; false: tokens are bytes
  bool byte_fallback = false;
  std::shared_ptr<const EncoderTokenizer> encoder;  // wordpiece, unigram, NLLB's bpe: all steps, the model
  std::vector<text::Change> normalizer;
  std::string space;  // what the pre-tokenizer (Metaspace) puts in place of a space; empty: spaces stay
  Prefix prefix = Prefix::never;
  text::Cut cut = text::Cut::characters;
  std::string separator;     // for text::Cut::before and after
  bool whole_first = false;  // a piece that is a token itself is not merged ("ignore_merges")
  // byte_fallback: the token for characters that have neither a token nor byte tokens; empty: none
  std::string unknown;
  bool fuse_unknown = false;       // a run of unknown characters becomes one token
  std::string decoded_space;       // byte_fallback: the text in tokens that decode() turns into a space; empty: a space
  bool strip_space = false;        // byte_fallback: decode() removes the first space
  std::vector<std::string> names;  // by id, as tokenizer.json spells them; empty: no token has this id
  std::vector<std::string> bytes;  // by id: the bytes of the token
  std::vector<bool> special;       // by id
  std::vector<bool> lone_byte;     // by id: byte_fallback's <0x00> to <0xFF>
  text::TextIndex ids;             // the ids of the vocabulary by bytes; with byte_fallback by name
  std::array<std::int64_t, 256> byte_ids{};  // bpe: the id of each byte; -1: none
  text::Bpe bpe;
  std::vector<AddedToken> added;  // by id
  AddedTokens searched_in_text, searched_in_normalized;
  std::string post_processor = "null", truncation = "null", padding = "null";  // as in the file
  Templates templates;
  std::int64_t max_length = 0;  // 0: no file names one
  bool cut_at_begin = false;    // what is too long is cut off at its begin

  /// Returns whether a token has this id.
  bool has(std::int64_t id) const {
    return id >= 0 && id < static_cast<std::int64_t>(names.size()) && !names[static_cast<std::size_t>(id)].empty();
  }

  /// Returns the ids that the post-processor adds before, or after, one text.
  std::vector<std::int64_t> before() const;
  std::vector<std::int64_t> after() const;

  /// Applies the normalizer to a part of a text; `first`: the part is the beginning of the text.
  text::Rewritten normalized(std::string_view part, bool first) const;

  /// Computes bytes, special, lone_byte, ids and byte_ids from names, added and merges. Returns false if two tokens
  /// have the same bytes.
  bool index();

 private:
  /// Returns the bytes of a token. With byte_fallback, a name such as <0xE4> is one byte; lone_byte then marks the
  /// token.
  std::string decoded(std::size_t id, const std::string& name);
};

const Tokenizer::State& state_of(const Tokenizer& tokenizer);

/// The tokenizer's file names in a model's folder.
inline constexpr const char *tokenizer_file = "tokenizer.json", *tokenizer_config_file = "tokenizer_config.json";

/// The name of the token for unknown words.
inline constexpr const char* unknown_word = "<unk>";

}  // namespace attn
