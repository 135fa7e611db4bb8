// src/text/tokenizer/bpe_train.cc: learns merges. A heap holds the pairs, ordered by count, each with the words that
// contain it.
#include "text/tokenizer/bpe.h"

#include <algorithm>
#include <unordered_map>

namespace attn::text {
namespace {

/// A pair, its count when it was put into the heap, and the words that then contained it.
struct Pair {
  std::int64_t count;
  std::int32_t left, right;
  std::vector<std::int32_t> words;
  // the most frequent pair is on top; of equal counts the one with the smaller ids
  bool operator<(const Pair& other) const {
    if (count != other.count) return count < other.count;
    return left != other.left ? left > other.left : right > other.right;
  }
};

using Counts = std::unordered_map<std::uint64_t, std::int64_t>;
using Places = std::unordered_map<std::uint64_t, std::vector<std::int32_t>>;

void note_word(std::vector<std::int32_t>& words, std::int32_t word) {
  if (words.empty() || words.back() != word) words.push_back(word);  // words are visited in order
}

/// Replaces each (left, right) in `word` by the merged id, and updates the counts of the pairs next to it. For each
/// pair that this creates, adds the word to `arisen`.
void replace(Word& word, std::int32_t index, const Merge& merge, Counts& counts, Places& arisen) {
  std::vector<std::int32_t>& s = word.symbols;
  std::size_t kept = 0;
  const auto count = [&](std::int32_t left, std::int32_t right, std::int64_t by) {
    counts[pair_key(left, right)] += by * word.count;
  };
  const auto arise = [&](std::int32_t left, std::int32_t right) {
    count(left, right, 1);
    note_word(arisen[pair_key(left, right)], index);
  };
  for (std::size_t i = 0; i < s.size();) {
    if (s[i] != merge.left || i + 1 == s.size() || s[i + 1] != merge.right) {
      s[kept++] = s[i++];
      continue;
    }
    if (kept > 0) {
      count(s[kept - 1], merge.left, -1);
      arise(s[kept - 1], merge.result);
    }
    if (i + 2 < s.size()) {
      count(merge.right, s[i + 2], -1);
      arise(merge.result, s[i + 2]);
    }
    s[kept++] = merge.result;
    i += 2;
  }
  s.resize(kept);
}

}  // namespace

std::vector<Merge> learn_merges(std::vector<Word> words, std::vector<std::string>& tokens, std::int64_t vocab_size) {
  Counts counts;
  Places places;
  for (std::size_t w = 0; w < words.size(); ++w) {
    const std::vector<std::int32_t>& s = words[w].symbols;
    for (std::size_t i = 0; i + 1 < s.size(); ++i) {
      counts[pair_key(s[i], s[i + 1])] += words[w].count;
      note_word(places[pair_key(s[i], s[i + 1])], static_cast<std::int32_t>(w));
    }
  }
  // a heap by std::push_heap: std::priority_queue would copy the words of each pair that it returns
  std::vector<Pair> pairs;
  const auto push = [&](Pair pair) {
    pairs.push_back(std::move(pair));
    std::push_heap(pairs.begin(), pairs.end());
  };
  const auto push_all = [&](Places& from) {
    for (auto& [key, held_by] : from)
      if (counts[key] > 0)
        push({counts[key], static_cast<std::int32_t>(key >> 32), static_cast<std::int32_t>(key & 0xFFFFFFFF),
              std::move(held_by)});
    from.clear();
  };
  push_all(places);

  std::unordered_map<std::string, std::int32_t> ids;
  for (const std::string& token : tokens) ids.emplace(token, static_cast<std::int32_t>(ids.size()));
  std::vector<Merge> merges;
  while (static_cast<std::int64_t>(tokens.size()) < vocab_size && !pairs.empty()) {
    std::pop_heap(pairs.begin(), pairs.end());
    Pair top = std::move(pairs.back());
    pairs.pop_back();
    if (const std::int64_t now = counts[pair_key(top.left, top.right)]; now != top.count) {
      top.count = now;
      push(std::move(top));
      continue;
    }
    if (top.count < 2) break;
    // Two merges may give a token with the same bytes; both are kept and have the same id.
    const auto [found, is_new] =
        ids.emplace(tokens[static_cast<std::size_t>(top.left)] + tokens[static_cast<std::size_t>(top.right)],
                    static_cast<std::int32_t>(tokens.size()));
    if (is_new) tokens.push_back(found->first);
    merges.push_back({top.left, top.right, found->second});
    for (const std::int32_t w : top.words)
      replace(words[static_cast<std::size_t>(w)], w, merges.back(), counts, places);
    push_all(places);
  }
  return merges;
}

}  // namespace attn::text
