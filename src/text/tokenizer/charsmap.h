// src/text/tokenizer/charsmap.h: SentencePiece's precompiled_charsmap: a table of texts and what replaces them.
#pragma once
#include "text/tokenizer/rewritten.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attn::text {

/// The table: [bytes of the trie, u32] [the trie, a double array of u32] [the replacements, each ended by a zero byte].
class Charsmap {
 public:
  /// Reads the table and checks each index that a search in it can reach.
  explicit Charsmap(std::string_view bytes) { damage_ = read(bytes); }
  /// Returns what is wrong; empty: nothing. A damaged table must not be applied.
  const std::string& damage() const { return damage_; }

  /// As Hugging Face's library: replaces a grapheme cluster of less than 6 bytes if a beginning of it is in the table,
  /// else each of its characters that begins so. The shortest beginning in the table decides; the complete cluster or
  /// character is replaced.
  Rewritten applied(const Rewritten& from) const;

  /// Returns the replacement of the longest beginning of `text` that is in the table, and how many bytes that beginning
  /// has. SentencePiece replaces so.
  std::optional<std::pair<std::string_view, std::size_t>> longest(std::string_view text) const;

 private:
  std::string read(std::string_view bytes);
  std::optional<std::string_view> replacement(std::string_view part) const;
  /// Calls found(replacement, bytes) for each beginning of `text` in the table, ascending, while it returns true.
  template <typename Found>
  void beginnings(std::string_view text, const Found& found) const;
  std::vector<std::uint32_t> units_;
  std::string replacements_, damage_;
};

}  // namespace attn::text
