// src/model/tokenizer_state.h: holds a tokenizer's state, in the form in which it is used, read and written.
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

/// Describes a token that is found in the text before the text is split.
struct AddedToken {
  std::string content;        // as in the file
  std::string searched = {};  // as in the text that is searched
  std::int64_t id = 0;
  bool special = false;
  // searched for after the tokens that are not `normalized`, as in Hugging Face's library, even without a normalizer
  bool normalized = false;
  bool in_vocabulary = false;  // also listed in the model's vocabulary
};

/// Says which parts of a text, between its added tokens, get a space in front if they do not begin with one. The first
/// part is the one at the beginning of the text.
enum class Prefix { never, first, always };
inline constexpr const char* prepend_schemes[] = {"never", "first", "always"};  // names in a Metaspace step

struct Tokenizer::State {
  Kind kind = Kind::characters;
  bool byte_fallback = false;  // bpe merges characters (or bytes of characters without a token), not bytes alone
  std::vector<text::Change> normalizer;
  std::string space;  // replacement of a space by the pre-tokenizer (Metaspace); empty: spaces stay
  Prefix prefix = Prefix::never;
  text::Cut cut = text::Cut::characters;
  std::string separator;           // for cuts that use one
  bool whole_first = false;        // a piece that is a token itself is not merged ("ignore_merges")
  std::string unknown;             // byte_fallback: token for characters that have no token and no bytes; empty: none
  bool fuse_unknown = false;       // a run of unknown characters becomes one token
  std::string decoded_space;       // byte_fallback: text in tokens that stands for a space; empty: a space
  bool strip_space = false;        // byte_fallback: decode() removes the first space
  std::vector<std::string> names;  // by id, as tokenizer.json spells them; empty: no token has this id
  std::vector<std::string> bytes;  // by id: the bytes of the token
  std::vector<bool> special;       // by id
  std::vector<bool> lone_byte;     // by id: byte_fallback's <0x00> to <0xFF>
  std::unordered_map<std::string, std::int64_t> ids;  // of the vocabulary, by bytes; with byte_fallback by name
  std::array<std::int64_t, 256> byte_ids{};           // bpe; -1: no token
  text::Bpe bpe;
  std::vector<AddedToken> added;  // by id
  std::string post_processor = "null";
  std::vector<std::int64_t> before, after;  // ids added before and after one text

  /// Fills bytes, special, lone_byte, ids and byte_ids from names, added and merges; returns false when two tokens have
  /// the same bytes.
  bool index();

 private:
  /// Returns the bytes of a token. With byte_fallback a name such as <0xE4> is a byte; lone_byte then records it.
  std::string decoded(std::size_t id, const std::string& name);
};

const Tokenizer::State& state_of(const Tokenizer& tokenizer);

/// The tokenizer's file name in a model's folder.
inline constexpr const char* tokenizer_file = "tokenizer.json";

/// The name of the token for unknown words.
inline constexpr const char* unknown_word = "<unk>";

}  // namespace attn
