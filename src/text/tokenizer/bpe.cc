// src/text/tokenizer/bpe.cc: merges the symbols of a piece of text. The symbols are a linked list; a heap holds the
// merges that can be applied.
#include "text/tokenizer/bpe.h"

#include <queue>

namespace attn::text {
namespace {

/// A symbol and the indices of its neighbours; id -1: it was merged into the symbol before it.
struct Symbol {
  std::int32_t id;
  std::int64_t before, after;
};

/// A merge that could be applied at symbol `at` when it was put into the heap.
struct Candidate {
  std::int32_t rank;
  std::int64_t at;
  // orders the heap: the merge with the lowest rank is on top; of equal ranks the leftmost
  bool operator<(const Candidate& other) const { return rank != other.rank ? rank > other.rank : at > other.at; }
};

}  // namespace

Bpe::Bpe(std::vector<Merge> merges) : merges_(std::move(merges)), ranks_(merges_.size()) {
  // As in Hugging Face's table, a pair that is listed twice has its later rank.
  for (std::size_t rank = 0; rank < merges_.size(); ++rank) {
    const Merge& merge = merges_[rank];
    ranks_.put(pair_key(merge.left, merge.right), static_cast<std::int32_t>(rank), makes(merge.left, merge.right));
  }
}

std::int32_t Bpe::rank_of(std::int32_t left, std::int32_t right) const {
  return ranks_.find(pair_key(left, right), makes(left, right));
}

void Bpe::merge(std::vector<std::int32_t>& symbols) const {
  const auto n = static_cast<std::int64_t>(symbols.size());
  std::vector<Symbol> list(symbols.size());
  std::priority_queue<Candidate> candidates;
  const auto symbol = [&](std::int64_t at) -> Symbol& { return list[static_cast<std::size_t>(at)]; };
  const auto note = [&](std::int64_t at) {
    if (at < 0 || symbol(at).after >= n) return;
    const std::int32_t rank = rank_of(symbol(at).id, symbol(symbol(at).after).id);
    if (rank >= 0) candidates.push({rank, at});
  };
  for (std::int64_t i = 0; i < n; ++i) symbol(i) = {symbols[static_cast<std::size_t>(i)], i - 1, i + 1};
  for (std::int64_t i = 0; i < n; ++i) note(i);
  while (!candidates.empty()) {
    const Candidate top = candidates.top();
    candidates.pop();
    const Merge& merge = merges_[static_cast<std::size_t>(top.rank)];
    Symbol& left = symbol(top.at);
    // The candidate may be outdated: either symbol may since have been merged with another neighbour.
    if (left.id != merge.left || left.after >= n || symbol(left.after).id != merge.right) continue;
    Symbol& right = symbol(left.after);
    left.id = merge.result;
    left.after = right.after;
    right.id = -1;
    if (left.after < n) symbol(left.after).before = top.at;
    note(left.before);
    note(top.at);
  }
  symbols.clear();
  for (std::int64_t i = 0; i < n; i = symbol(i).after) symbols.push_back(symbol(i).id);
}

}  // namespace attn::text
