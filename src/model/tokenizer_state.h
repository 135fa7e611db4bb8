// src/model/tokenizer_state.h: what a tokenizer knows, in the form in which it is used, read and written.
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

/// A token that is found in the text before it is cut.
struct AddedToken {
  std::string content;        // as the file has it
  std::string searched = {};  // as the texts have it in which it is searched
  std::int64_t id = 0;
  bool special = false;
  // found where those that are not have left the text, as Hugging Face's library does without a normalizer too
  bool normalized = false;
  bool in_vocabulary = false;  // the model's vocabulary lists it too
};

/// Which parts of a text, between its added tokens, get a space before them where they have none; the first is the one
/// with which the text begins.
enum class Prefix { never, first, always };
inline constexpr const char* prepend_schemes[] = {"never", "first", "always"};  // their names in a Metaspace

struct Tokenizer::State {
  Kind kind = Kind::characters;
  bool byte_fallback = false;  // bpe merges characters, and the bytes of those that have no token; else bytes
  std::vector<text::Change> normalizer;
  std::string space;  // what the pre-tokenizer makes of a space (Metaspace); empty: it stays
  Prefix prefix = Prefix::never;
  text::Cut cut = text::Cut::characters;
  std::string separator;           // of the cuts that have one
  bool whole_first = false;        // a piece that is a token is not merged ("ignore_merges")
  std::string unknown;             // byte_fallback: the token for characters without tokens of their bytes; empty: none
  bool fuse_unknown = false;       // one for a run of them
  std::string decoded_space;       // byte_fallback: what tokens have in place of a space; empty: spaces
  bool strip_space = false;        // byte_fallback: the first one of a decoded text is none of its own
  std::vector<std::string> names;  // by id, as tokenizer.json spells them; empty: no token has this id
  std::vector<std::string> bytes;  // by id, what they stand for
  std::vector<bool> special;       // by id
  std::vector<bool> lone_byte;     // by id: byte_fallback's <0x00> to <0xFF>
  std::unordered_map<std::string, std::int64_t> ids;  // of the vocabulary, by bytes; with byte_fallback by name
  std::array<std::int64_t, 256> byte_ids{};           // bpe; -1: no token
  text::Bpe bpe;
  std::vector<AddedToken> added;  // by id
  std::string post_processor = "null";
  std::vector<std::int64_t> before, after;  // what it puts around one text

  /// Fills bytes, special, lone_byte, ids and byte_ids from names, added and merges; false when two tokens stand for
  /// the same bytes.
  bool index();

 private:
  /// What a token stands for; with byte_fallback <0xE4> for a byte, and that is noted.
  std::string decoded(std::size_t id, const std::string& name);
};

const Tokenizer::State& state_of(const Tokenizer& tokenizer);

/// The file of a model's folder.
inline constexpr const char* tokenizer_file = "tokenizer.json";

/// The word that stands for all unknown ones.
inline constexpr const char* unknown_word = "<unk>";

}  // namespace attn
