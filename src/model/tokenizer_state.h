// src/model/tokenizer_state.h: what a tokenizer knows, in the form in which it is used, read and written.
#pragma once
#include <attn/tokenizer.h>

#include "text/tokenizer/bpe.h"
#include "text/tokenizer/cut.h"

#include <array>
#include <string>
#include <unordered_map>
#include <vector>

namespace attn {

/// A token that is found in the text before it is cut.
struct AddedToken {
  std::string content;
  std::int64_t id = 0;
  bool special = false;
  bool normalized = false;     // found where those that are not have left the text, as Hugging Face's library does without a normalizer too
  bool in_vocabulary = false;  // the model's vocabulary lists it too
};

struct Tokenizer::State {
  Kind kind = Kind::characters;
  text::Cut cut = text::Cut::characters;
  bool nfc = false;               // texts are brought to Unicode's form C first
  bool add_prefix_space = false;  // before a text that does not begin with one
  bool whole_first = false;       // a piece that is a token is not merged ("ignore_merges")
  std::vector<std::string> names;  // by id, as tokenizer.json spells them; empty: no token has this id
  std::vector<std::string> bytes;  // by id, what they stand for
  std::vector<bool> special;       // by id
  std::unordered_map<std::string, std::int64_t> ids;  // of the vocabulary, by bytes
  std::array<std::int64_t, 256> byte_ids{};           // bpe; -1: no token
  text::Bpe bpe;
  std::vector<AddedToken> added;  // by id
  std::string post_processor = "null";
  std::vector<std::int64_t> before, after;  // what it puts around one text

  /// Fills bytes, special, ids and byte_ids from names, added and merges; false when two tokens stand for the same bytes.
  bool index();
};

/// The word that stands for all unknown ones.
inline constexpr const char* unknown_word = "<unk>";

}  // namespace attn
