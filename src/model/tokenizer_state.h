// src/model/tokenizer_state.h: declares the state of a tokenizer, which encoding, decoding, reading and writing share.
#pragma once
#include <attn/tokenizer.h>

#include "text/tokenizer/bpe.h"
#include "text/tokenizer/changes.h"
#include "text/tokenizer/cut.h"

#include <array>
#include <string>
#include <unordered_map>
#include <vector>

namespace attn {

/// A token that is searched for in the text before the text is split.
struct AddedToken {
  std::string content;  // the token as in the file
  // the text to search for: `content`, normalized if the text that is searched is normalized
  std::string searched = {};
  std::int64_t id = 0;
  bool special = false;
  // Such tokens are searched for after the others, as in Hugging Face's library, even if there is no normalizer.
  bool normalized = false;
  bool in_vocabulary = false;  // also listed in the model's vocabulary
};

/// Which parts of a text, between its added tokens, get a space in front unless they begin with one. `first`: only the
/// part at the beginning of the text.
enum class Prefix { never, first, always };
inline constexpr const char* prepend_schemes[] = {"never", "first", "always"};  // names in a Metaspace step

struct Tokenizer::State {
  Kind kind = Kind::characters;
  // bpe: tokens are characters, or bytes of characters without a token; false: tokens are bytes
  bool byte_fallback = false;
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
  std::unordered_map<std::string, std::int64_t> ids;  // the ids of the vocabulary by bytes; with byte_fallback by name
  std::array<std::int64_t, 256> byte_ids{};           // bpe: the id of each byte; -1: none
  text::Bpe bpe;
  std::vector<AddedToken> added;  // by id
  std::string post_processor = "null";
  std::vector<std::int64_t> before, after;  // ids added before and after one text

  /// Returns whether a token has this id.
  bool has(std::int64_t id) const {
    return id >= 0 && id < static_cast<std::int64_t>(names.size()) && !names[static_cast<std::size_t>(id)].empty();
  }

  /// Computes bytes, special, lone_byte, ids and byte_ids from names, added and merges. Returns false if two tokens
  /// have the same bytes.
  bool index();

 private:
  /// Returns the bytes of a token. With byte_fallback, a name such as <0xE4> is one byte; lone_byte then marks the
  /// token.
  std::string decoded(std::size_t id, const std::string& name);
};

const Tokenizer::State& state_of(const Tokenizer& tokenizer);

/// The tokenizer's file name in a model's folder.
inline constexpr const char* tokenizer_file = "tokenizer.json";

/// The name of the token for unknown words.
inline constexpr const char* unknown_word = "<unk>";

}  // namespace attn
