// src/ranks/stripe_stream.cc: sends chunks of rows to all ranks, and sorts what arrives.
#include "ranks/stripe_stream.h"

#include "kernels/attention/block_and_tile_sizes.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

namespace attn {
namespace {

constexpr std::int64_t span_rows = kernels::kv_split;  // a chunk ends where a span of the keys ends

/// Returns how many chunks of that many bytes are on their way while one is used.
std::int64_t chunks_ahead(std::size_t bytes) {
  constexpr std::size_t most = 4, most_bytes = std::size_t{64} << 20;
  return static_cast<std::int64_t>(std::clamp<std::size_t>(most_bytes / std::max<std::size_t>(bytes, 1), 1, most));
}

}  // namespace

StripeStream::StripeStream(const Ranks& ranks, const Stripes& stripes, std::vector<Array> arrays, std::int64_t rounds)
    : ranks_(ranks), stripes_(stripes), arrays_(std::move(arrays)), rounds_(rounds),
      // a block of each rank at least
      chunk_rows_((stripes.step() + span_rows - 1) / span_rows * span_rows) {
  chunk_.resize(bytes(std::min(chunk_rows_, stripes.length)));
  // the rank with one block more than others is not the same in each chunk
  const std::int64_t blocks = (chunk_rows_ / Stripes::block + stripes.ranks - 1) / stripes.ranks;
  const auto most = [&](int rank) { return bytes(std::min(blocks * Stripes::block, stripes.rows_of(rank))); };
  const auto count = static_cast<std::size_t>(ranks.size());
  const std::int64_t ahead = std::min(chunks_ahead(chunk_.size()), chunks() * rounds);
  slots_.reserve(static_cast<std::size_t>(ahead));
  for (std::int64_t n = 0; n < ahead; ++n) {
    Slot& slot = slots_.emplace_back(std::vector<char>(most(ranks.rank())), std::vector<std::vector<char>>(count),
                                     Messages(ranks.transport()));
    for (int rank = 0; rank < ranks.size(); ++rank)
      if (rank != ranks.rank()) slot.received[static_cast<std::size_t>(rank)].resize(most(rank));
    slot.messages.reserve(2 * count, chunk_.size());
  }
}

std::size_t StripeStream::bytes(std::int64_t rows) const {
  std::size_t all = 0;
  for (const Array& array : arrays_) all += planes(array) * array.row_bytes * static_cast<std::size_t>(rows);
  return all;
}

char* StripeStream::plane(std::size_t array, std::size_t index) {
  const auto rows = static_cast<std::size_t>(this->rows().size());
  std::size_t at = 0;
  for (std::size_t n = 0; n < array; ++n) at += planes(arrays_[n]) * arrays_[n].row_bytes * rows;
  return chunk_.data() + at + index * arrays_[array].row_bytes * rows;
}

void StripeStream::pack(const Span& rows, std::int64_t round, char* to) {
  const std::int64_t first = stripes_.before(rows.begin, ranks_.rank());
  const auto count = static_cast<std::size_t>(share(rows, ranks_.rank()));
  if (count == 0) return;
  for (const Array& array : arrays_)
    for (std::size_t n = 0; n < planes(array); ++n, to += count * array.row_bytes)
      std::memcpy(to,
                  static_cast<const char*>(array.planes[static_cast<std::size_t>(round) * planes(array) + n]) +
                      static_cast<std::size_t>(first) * array.row_bytes,
                  count * array.row_bytes);
}

void StripeStream::unpack(const Span& rows, int rank, const char* from) {
  for (std::size_t a = 0; a < arrays_.size(); ++a)
    for (std::size_t n = 0; n < planes(arrays_[a]); ++n) {
      char* const to = plane(a, n);
      const std::size_t row_bytes = arrays_[a].row_bytes;
      // a chunk begins with a block of any rank
      for (std::int64_t row = rows.begin; row < rows.end; row += Stripes::block) {
        if (row / Stripes::block % stripes_.ranks != rank) continue;
        const auto count = static_cast<std::size_t>(std::min(rows.end - row, Stripes::block)) * row_bytes;
        std::memcpy(to + static_cast<std::size_t>(row - rows.begin) * row_bytes, from, count);
        from += count;
      }
    }
}

void StripeStream::post() {
  if (posted_ == chunks() * rounds_) return;
  const Span rows = rows_of(posted_);
  Slot& chunk = slot(posted_);
  pack(rows, posted_ / chunks(), chunk.sent.data());
  ++posted_;
  const int own = ranks_.rank(), count = ranks_.size();
  for (int step = 1; step < count; ++step) {  // each rank begins with another neighbour
    const int from = (own + count - step) % count, to = (own + step) % count;
    std::vector<char>& memory = chunk.received[static_cast<std::size_t>(from)];
    chunk.messages.receive(from, memory.data(), bytes(share(rows, from)));
    chunk.messages.send(to, chunk.sent.data(), bytes(share(rows, own)));
  }
}

bool StripeStream::next() {
  if (current_ + 1 == chunks() * rounds_) return false;
  Slot& chunk = slot(++current_);
  chunk.messages.wait();
  ranks_.heard();
  const Span rows = this->rows();
  for (int rank = 0; rank < ranks_.size(); ++rank)
    unpack(rows, rank,
           rank == ranks_.rank() ? chunk.sent.data() : chunk.received[static_cast<std::size_t>(rank)].data());
  const std::int64_t end = current_ + 1 + std::ssize(slots_);
  for (int n = 0; n < 2 && posted_ < end; ++n) post();
  return true;
}

}  // namespace attn
