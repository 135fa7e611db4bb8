// src/text/tokenizer/bpe.h: byte-pair encoding on ids: the merges, their use, and how they are learnt.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace attn::text {

/// Two ids side by side become one; earlier merges go first.
struct Merge {
  std::int32_t left, right, result;
};

/// Sennrich 2016 (1508.07909). Thread safety: constant once made.
class Bpe {
 public:
  Bpe() = default;
  explicit Bpe(std::vector<Merge> merges);
  const std::vector<Merge>& merges() const { return merges_; }

  /// Merges `symbols` of one piece until no merge applies: always the earliest merge, the leftmost of equals. O(n log
  /// n), whatever stands there.
  void merge(std::vector<std::int32_t>& symbols) const;

 private:
  const std::int32_t* rank_of(std::int32_t left, std::int32_t right) const;
  std::vector<Merge> merges_;
  std::unordered_map<std::uint64_t, std::int32_t> ranks_;
};

/// A pair of ids as one key.
inline std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
}

/// Ids are below this.
inline constexpr std::int64_t most_tokens = 1 << 22;

/// Learns merges from words with their counts until there are `vocab_size` tokens or no pair occurs twice; `tokens`,
/// one a symbol of the alphabet, grows by what the merges make. The most frequent pair goes first, of equals the one
/// with the smaller ids, as Hugging Face's trainer has it; counts are kept up to date, never taken anew.
struct Word {
  std::vector<std::int32_t> symbols;
  std::int64_t count = 0;
};
std::vector<Merge> learn_merges(std::vector<Word> words, std::vector<std::string>& tokens, std::int64_t vocab_size);

}  // namespace attn::text
