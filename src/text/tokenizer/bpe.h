// src/text/tokenizer/bpe.h: declares byte-pair encoding on ids: the merges, their use, and their training.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace attn::text {

/// Replaces two adjacent ids by one. Merges earlier in the list apply first.
struct Merge {
  std::int32_t left, right, result;
};

/// Applies merges (Sennrich 2016, 1508.07909). Constant after construction, so several threads may use it.
class Bpe {
 public:
  Bpe() = default;
  explicit Bpe(std::vector<Merge> merges);
  const std::vector<Merge>& merges() const { return merges_; }

  /// Merges `symbols` of one piece until no merge applies. It always takes the earliest merge, and the leftmost
  /// position of equal ones. O(n log n) for any input.
  void merge(std::vector<std::int32_t>& symbols) const;

 private:
  const std::int32_t* rank_of(std::int32_t left, std::int32_t right) const;
  std::vector<Merge> merges_;
  std::unordered_map<std::uint64_t, std::int32_t> ranks_;
};

/// Returns a pair of ids as one key.
inline std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
}

/// All ids are smaller than this.
inline constexpr std::int64_t most_tokens = 1 << 22;

/// Learns merges from words with their counts, until there are `vocab_size` tokens or no pair occurs twice. `tokens`
/// starts with one token for each symbol of the alphabet; each merge appends one. The most frequent pair is merged
/// first, of equal ones the one with the smaller ids, as in Hugging Face's trainer. Counts are updated, never computed
/// anew.
struct Word {
  std::vector<std::int32_t> symbols;
  std::int64_t count = 0;
};
std::vector<Merge> learn_merges(std::vector<Word> words, std::vector<std::string>& tokens, std::int64_t vocab_size);

}  // namespace attn::text
