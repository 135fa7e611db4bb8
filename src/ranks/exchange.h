// src/ranks/exchange.h: adds arrays that the ranks have, in the order of a tree, and gives every rank the result.
#pragma once
#include <attn/ranks.h>

#include "model/part_tree.h"

#include <deque>
#include <functional>
#include <vector>

namespace attn {

/// A node of the tree over all parts that this rank has added up itself: a flat array of all elements. A single part
/// may be in its own dtype, a sum is in that of the computation.
struct NodeSum {
  Span node;
  Tensor values;
};

/// How an array is dealt: rank r owns the elements cuts[r] to before cuts[r + 1], and sends and receives them in
/// buckets, which stay in a cache while they are added.
class Pieces {
 public:
  explicit Pieces(std::vector<std::int64_t> cuts) : cuts_(std::move(cuts)) {}
  /// Deals `count` elements; every cut is a multiple of 4,096.
  Pieces(std::int64_t count, int ranks);

  static constexpr std::int64_t bucket_elements = 131072;
  Span of(int rank) const { return {cuts_[static_cast<std::size_t>(rank)], cuts_[static_cast<std::size_t>(rank) + 1]}; }
  int ranks() const { return static_cast<int>(cuts_.size()) - 1; }
  std::int64_t count() const { return cuts_.back(); }
  std::int64_t buckets(int rank) const { return (of(rank).size() + bucket_elements - 1) / bucket_elements; }
  std::int64_t most_buckets() const;
  Span bucket(int rank, std::int64_t index) const;

 private:
  std::vector<std::int64_t> cuts_;
};

/// One sum over all ranks. The constructor allocates everything, so that `run` cannot fail while others wait.
class OrderedSum {
 public:
  /// `parts`: of all ranks; `part_dtype`: of a node that is a single part.
  OrderedSum(const Ranks& ranks, std::int64_t parts, Dtype part_dtype, const Pieces& pieces);
  /// Adds the nodes, which are `nodes(rank)` in that order. Writes the elements of this rank's piece to `out`, from its
  /// first element on, in the dtype of the parts (rounded once); `out` may be that piece of an array of `mine`. Calls
  /// `finished` with each bucket that is written.
  void run(const std::vector<NodeSum>& mine, void* out, const std::function<void(const Span&)>& finished = {});
  /// Returns the nodes of a rank, from left to right.
  static std::vector<Span> nodes(std::int64_t parts, int rank, int ranks);

 private:
  struct Term {  // a node in the order of the tree
    int rank;
    Span node;
    std::size_t index;             // among its rank's nodes
    const void* values = nullptr;  // of this rank: the whole array; of others: the bucket
    bool single() const { return node.size() == 1; }
  };
  const char* bucket_of(const Term& term, const Span& bucket) const;
  const void* add(const Span& node, const Span& bucket, std::size_t depth, void* into);
  char* scratch(std::size_t index) { return scratch_[index].data(); }

  const Ranks& ranks_;
  const std::int64_t parts_;
  const Dtype part_dtype_, sum_dtype_;
  const Pieces& pieces_;
  std::vector<Term> terms_;
  std::vector<std::vector<char>> slots_;    // received buckets: of every window and every term of other ranks
  std::vector<std::vector<char>> scratch_;  // sums on their way, one for each depth, then widened single parts
  std::size_t widened_ = 0, window_ = 0;
};

/// Gives every rank the pieces of all others. `pack` writes a bucket of this rank's piece to memory, `unpack` takes
/// those of the others from there. Allocates two buckets for each rank that sends.
class Spread {
 public:
  using Pack = std::function<void(const Span& bucket, void* to)>;
  using Unpack = std::function<void(const Span& bucket, const void* from)>;
  Spread(const Ranks& ranks, const Pieces& pieces, std::size_t element_bytes);
  void run(const Pack& pack, const Unpack& unpack);

 private:
  static constexpr std::int64_t window = 2;
  char* slot(int rank, std::int64_t bucket);
  const Ranks& ranks_;
  const Pieces& pieces_;
  const std::size_t element_bytes_;
  std::vector<char> slots_;
};

}  // namespace attn
