// src/text/tokenizer/bpe.h: declares byte-pair encoding on ids: the merges, their use, and their training.
#pragma once
#include "text/tokenizer/index_table.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attn::text {

/// A merge replaces two adjacent ids by one. Merges that are earlier in the list are applied first.
struct Merge {
  std::int32_t left, right, result;
};

/// Applies merges (Sennrich 2016, 1508.07909). It does not change after construction, so several threads may use it.
class Bpe {
 public:
  Bpe() = default;
  explicit Bpe(std::vector<Merge> merges);
  const std::vector<Merge>& merges() const { return merges_; }

  /// Merges the symbols of one piece of text until no merge can be applied. Each time it applies the merge that is
  /// earliest in the list, at its leftmost position. Takes O(n log n) for any input.
  void merge(std::vector<std::int32_t>& symbols) const;

 private:
  /// Returns whether a merge in the list is that of two ids.
  auto makes(std::int32_t left, std::int32_t right) const {
    return [this, left, right](std::int32_t rank) {
      const Merge& merge = merges_[static_cast<std::size_t>(rank)];
      return merge.left == left && merge.right == right;
    };
  }
  /// Returns the index in the list of the merge of two ids, or -1.
  std::int32_t rank_of(std::int32_t left, std::int32_t right) const;
  std::vector<Merge> merges_;
  IndexTable ranks_;
};

/// Combines two ids to one key of the table of pairs.
inline std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
}

/// All ids are smaller than this.
inline constexpr std::int64_t most_tokens = 1 << 22;

/// Learns merges from words with their counts, until there are `vocab_size` tokens or no pair occurs twice. `tokens`
/// starts with one token for each symbol of the alphabet; each merge appends its token unless it is there. As in
/// Hugging Face's trainer, the most frequent pair is merged first; of pairs with equal counts the one with the smaller
/// ids. After each merge only the counts that change are updated.
struct Word {
  std::vector<std::int32_t> symbols;
  std::int64_t count = 0;
};
std::vector<Merge> learn_merges(std::vector<Word> words, std::vector<std::string>& tokens, std::int64_t vocab_size);

}  // namespace attn::text
