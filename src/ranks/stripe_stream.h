// src/ranks/stripe_stream.h: rows that are dealt to the ranks in stripes pass by all of them, chunk by chunk in their
// order.
#pragma once
#include <attn/ranks.h>

#include "kernels/attention/block_and_tile_sizes.h"
#include "model/part_tree.h"
#include "ranks/messages.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace attn {

/// Block b of rows and keys belongs to rank b mod R.
struct Stripes {
  static constexpr std::int64_t block = kernels::kv_block;
  std::int64_t length = 0;
  int ranks = 1;

  static std::int64_t blocks_of(std::int64_t rows) { return (rows + block - 1) / block; }
  std::int64_t step() const { return ranks * block; }
  /// Returns how many of a rank's rows are before row `end`.
  std::int64_t before(std::int64_t end, int rank) const {
    const std::int64_t left = std::min(end, length) - rank * block;
    return left <= 0 ? 0 : left / step() * block + std::min(left % step(), block);
  }
  std::int64_t rows_of(int rank) const { return before(length, rank); }
};

/// While a chunk is used, the next ones are on their way: the link then has work while the ranks are at different
/// chunks, and while they sort what they received. The memory is one chunk, and one more for each chunk on its way: the
/// rows received, not yet sorted, and this rank's share. The constructor allocates it; the other functions cannot fail.
/// Every rank must call `next` the same number of times.
class StripeStream {
 public:
  /// This rank's rows of one array: planes (a head of a batch item each) of adjacent rows.
  struct Array {
    std::vector<const void*> planes;  // those of each round in turn
    std::size_t row_bytes = 0;
  };
  /// The rows pass by `rounds` times, each time with other planes.
  StripeStream(const Ranks& ranks, const Stripes& stripes, std::vector<Array> arrays, std::int64_t rounds = 1);

  ~StripeStream() {
    for (Slot& slot : slots_) slot.messages.wait();
  }
  StripeStream(const StripeStream&) = delete;
  StripeStream& operator=(const StripeStream&) = delete;

  /// Begins to send the first chunk: alone, because all ranks wait for it, and messages share a link.
  void start() { post(); }
  /// Waits for the next chunk and begins to send another one; or two, while fewer than the maximum are on their way.
  /// Returns false after the last.
  bool next();
  std::int64_t round() const { return current_ / chunks(); }
  bool is_first() const { return current_ == 0; }
  bool is_last() const { return current_ + 1 == chunks() * rounds_; }
  Span rows() const { return rows_of(current_); }
  /// Returns a plane of the round: [rows of the chunk][row bytes]. Those of an array follow each other.
  char* plane(std::size_t array, std::size_t index);
  /// Lets messages move: an MPI may do so only inside of its calls.
  void progress() { ranks_.transport().progress(); }
  std::int64_t chunks() const { return (stripes_.length + chunk_rows_ - 1) / chunk_rows_; }

 private:
  /// A chunk on its way.
  struct Slot {
    std::vector<char> sent;
    std::vector<std::vector<char>> received;  // from each rank
    Messages messages;
  };
  Slot& slot(std::int64_t index) { return slots_[static_cast<std::size_t>(index) % slots_.size()]; }
  Span rows_of(std::int64_t index) const {
    const std::int64_t begin = index % chunks() * chunk_rows_;
    return {begin, std::min(stripes_.length, begin + chunk_rows_)};
  }
  std::size_t planes(const Array& array) const { return array.planes.size() / static_cast<std::size_t>(rounds_); }
  /// Returns the bytes of `rows` rows of all planes of a round.
  std::size_t bytes(std::int64_t rows) const;
  std::int64_t share(const Span& rows, int rank) const {
    return stripes_.before(rows.end, rank) - stripes_.before(rows.begin, rank);
  }
  void post();
  void pack(const Span& rows, std::int64_t round, char* to);
  void unpack(const Span& rows, int rank, const char* from);

  const Ranks& ranks_;
  const Stripes stripes_;
  const std::vector<Array> arrays_;
  const std::int64_t rounds_;
  std::int64_t chunk_rows_, posted_ = 0, current_ = -1;
  std::vector<char> chunk_;
  std::vector<Slot> slots_;
};

}  // namespace attn
