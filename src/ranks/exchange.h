// src/ranks/exchange.h: adds arrays that the ranks have, in the order of a tree, and gives every rank the result.
#pragma once
#include <attn/ranks.h>

#include "model/part_tree.h"

#include <deque>
#include <functional>
#include <vector>

namespace attn {

/// How an array is dealt to the ranks. A round has one bucket for each rank, adjacent in memory, so that every rank has
/// a bucket to add when the end of the array is complete first. Buckets stay in a cache while they are added.
class Buckets {
 public:
  /// Deals `count` elements. `cut` returns the last element, at or before the given one, at which a bucket may begin;
  /// it must not decrease.
  Buckets(std::int64_t count, int ranks, const std::function<std::int64_t(std::int64_t)>& cut);
  /// Every cut is a multiple of 4,096.
  Buckets(std::int64_t count, int ranks);

  static constexpr std::int64_t bucket_elements = 131072;  // or a little more
  int ranks() const { return ranks_; }
  std::int64_t count() const { return cuts_.back(); }
  std::int64_t rounds() const { return static_cast<std::int64_t>(cuts_.size() - 1) / ranks_; }
  /// May be empty.
  Span bucket(int rank, std::int64_t round) const {
    const auto i = static_cast<std::size_t>(round * ranks_ + rank);
    return {cuts_[i], cuts_[i + 1]};
  }
  /// Returns where a round begins.
  std::int64_t begin(std::int64_t round) const { return cuts_[static_cast<std::size_t>(round * ranks_)]; }
  /// Returns the number of elements of the largest bucket.
  std::int64_t most() const;

 private:
  std::vector<std::int64_t> cuts_;
  int ranks_;
};

/// Sums over all ranks, one after another. The rounds of a sum go from the last to the first, as a backward pass
/// finishes gradients. The constructor allocates everything, so that a sum cannot fail while others wait.
class OrderedSum {
 public:
  /// `parts`: of all ranks; `part_dtype`: of a node that is a single part.
  OrderedSum(const Ranks& ranks, std::int64_t parts, Dtype part_dtype, const Buckets& buckets);
  /// Returns the nodes of a rank, from left to right.
  static std::vector<Span> nodes(std::int64_t parts, int rank, int ranks);

  /// Begins a sum. `out` is the whole array; the elements of this rank's buckets are written, in the dtype of the parts
  /// (rounded once). It may be an array of this rank's nodes.
  void start(void* out);
  /// Says where the elements of this rank's node `index` are, which must stay there until `finish` returns. It has the
  /// dtype of the parts if it is a single part, else that of the sums.
  void give(std::size_t index, const Tensor& values) { mine_[index].values = values; }
  /// The elements from `first` on of a node that was given are final: begins to send them.
  void send_from(std::size_t index, std::int64_t first);
  /// Adds what has come, and lets messages move. Returns at once.
  void advance();
  /// Returns whether messages of this rank are on their way.
  bool is_sending() const { return !sent_.empty(); }
  /// Sends the rest, and waits for all. Calls `finished` with each bucket that is written from now on. `failed`: this
  /// rank could not compute its nodes; it sends meaningless buckets so that nobody waits, and the result must not be
  /// used.
  void finish(bool failed = false, const std::function<void(const Span&)>& finished = {});

 private:
  struct Term {  // a node in the order of the tree
    int rank;
    Span node;
    std::size_t index;             // among its rank's nodes
    const void* values = nullptr;  // of this rank: the whole array; of others: the bucket
    bool single() const { return node.size() == 1; }
  };
  struct Mine {
    Tensor values;
    std::int64_t next = -1;   // the round that is sent next
    std::size_t element = 0;  // bytes
  };
  std::size_t slot(std::int64_t round) const { return static_cast<std::size_t>(round) % window_; }
  char* memory(std::int64_t round, std::size_t term) { return slots_[slot(round) * terms_.size() + term].data(); }
  std::size_t element_of(const Term& term) const { return size_of(term.single() ? part_dtype_ : sum_dtype_); }
  void receive(std::int64_t round);
  void send(Mine& mine, std::size_t index, bool failed);
  void add_round(const std::function<void(const Span&)>& finished);
  const char* bucket_of(const Term& term, const Span& bucket) const;
  const void* add(const Span& node, const Span& bucket, std::size_t depth, void* into);
  char* scratch(std::size_t index) { return scratch_[index].data(); }

  const Ranks& ranks_;
  const std::int64_t parts_;
  const Dtype part_dtype_, sum_dtype_;
  const Buckets& buckets_;
  std::vector<Term> terms_;
  std::vector<Mine> mine_;
  std::vector<std::vector<char>> slots_;    // received buckets: of every window and every term of other ranks
  std::vector<std::vector<char>> scratch_;  // sums on their way, one for each depth, then widened single parts
  std::size_t widened_ = 0, window_ = 0;

  // of the present sum
  char* out_ = nullptr;
  std::int64_t next_ = -1;                                 // the round that is added next
  std::vector<std::vector<Transport::Request>> received_;  // of each window
  std::deque<Transport::Request> sent_;
};

/// Gives every rank the buckets of all others. `pack` writes one of this rank's buckets to memory, `unpack` takes those
/// of the others from there. Allocates two buckets for each rank that sends.
class Spread {
 public:
  using Pack = std::function<void(const Span& bucket, void* to)>;
  using Unpack = std::function<void(const Span& bucket, const void* from)>;
  Spread(const Ranks& ranks, const Buckets& buckets, std::size_t element_bytes);
  void run(const Pack& pack, const Unpack& unpack);

 private:
  static constexpr std::int64_t window = 2;
  char* slot(int rank, std::int64_t bucket);
  const Ranks& ranks_;
  const Buckets& buckets_;
  const std::size_t element_bytes_;
  std::vector<char> slots_;
};

}  // namespace attn
