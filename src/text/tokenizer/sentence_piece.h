// src/text/tokenizer/sentence_piece.h: splits texts into pieces with a SentencePiece model (.spm, .model), as
// SentencePiece's library does.
#pragma once
#include "text/tokenizer/charsmap.h"
#include "text/tokenizer/trie.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attn::text {

/// What the file of a SentencePiece model says: the fields of its protocol buffer that decide the pieces of a text.
struct SentencePieceFile {
  enum class Type { normal = 1, unknown, control, user_defined, unused, byte };
  struct Piece {
    std::string text;
    float score = 0;
    Type type = Type::normal;
  };
  std::vector<Piece> pieces;
  std::uint64_t model_type = 1;  // 1: Unigram, 2: BPE
  std::string charsmap;          // precompiled_charsmap; empty: none
  bool dummy_prefix = true, remove_spaces = true, escape_spaces = true, space_behind = false, byte_fallback = false;
  /// Reads the bytes of a file, of which nothing is trusted. Throws a ValueError, whose text begins with `name`.
  static SentencePieceFile parse(std::string_view bytes, const std::string& name);
};

/// SentencePiece's space in pieces.
inline constexpr std::string_view piece_space = "\xE2\x96\x81";

/// Encodes texts with the Unigram model of a file.
class SentencePiece {
 public:
  /// Throws a ValueError, whose text begins with `name`, for a file with another model, without pieces, or with a
  /// damaged table of replacements.
  SentencePiece(const SentencePieceFile& file, const std::string& name);
  /// Returns the pieces of a text in UTF-8. Characters without a piece, side by side, are one.
  std::vector<std::string> encode(std::string_view text) const;

 private:
  std::string normalized(std::string_view text) const;
  /// Returns the normalized form of a beginning of the text, and how many bytes that beginning has.
  std::pair<std::string_view, std::size_t> normalized_beginning(std::string_view text) const;
  /// Returns the bytes of the longest piece that the user defined at the beginning of the text.
  std::size_t user_defined_at(std::string_view text) const;
  struct Known {
    float score;
    SentencePieceFile::Type type;
  };
  std::vector<Known> known_;  // by the trie's id
  float unknown_score_ = 0, greatest_ = 0;
  bool has_user_defined_ = false, dummy_prefix_, remove_spaces_, escape_spaces_, space_behind_;
  std::unique_ptr<const Charsmap> charsmap_;  // null: none
  Trie trie_;
};

}  // namespace attn::text
