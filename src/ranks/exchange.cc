// src/ranks/exchange.cc: sends the pieces of arrays bucket by bucket, and adds them at their owner while the next ones
// are on their way.
#include "ranks/exchange.h"

#include "kernels/rows/target.h"
#include "tensor/blocks.h"
#include "tensor/rows.h"

#include <algorithm>
#include <cstring>

namespace attn {
namespace {

// The messages of a sum and those that spread its result may cross.
constexpr int sum_channel = 1, spread_channel = 2;

/// Computes y = a + b with the bits of the operation `add`.
void add_arrays(Dtype dtype, const void* a, const void* b, void* y, std::int64_t n) {
  if (const auto binary = kernels::row_kernels().binary)
    return binary(kernels::Binary::add, row_element_of(dtype), a, b, 0, y, n);
  with_compute_type(dtype, [&]<typename T>(Type<T>) {
    const T *x = static_cast<const T*>(a), *z = static_cast<const T*>(b);
    T* result = static_cast<T*>(y);
    for (std::int64_t i = 0; i < n; ++i) result[i] = canonical_nan(x[i] + z[i]);
  });
}

}  // namespace

Pieces::Pieces(std::int64_t count, int ranks) {
  constexpr std::int64_t block = 4096;
  for (int r = 0; r < ranks; ++r) cuts_.push_back(count * r / ranks / block * block);
  cuts_.push_back(count);
}

std::int64_t Pieces::most_buckets() const {
  std::int64_t most = 0;
  for (int r = 0; r < ranks(); ++r) most = std::max(most, buckets(r));
  return most;
}

Span Pieces::bucket(int rank, std::int64_t index) const {
  const Span piece = of(rank);
  const std::int64_t begin = piece.begin + index * bucket_elements;
  return {begin, std::min(piece.end, begin + bucket_elements)};
}

// --- the sum -------------------------------------------------------------------------------------------------------

std::vector<Span> OrderedSum::nodes(std::int64_t parts, int rank, int ranks) {
  return nodes_inside({0, parts}, share_of(parts, rank, ranks));
}

OrderedSum::OrderedSum(const Ranks& ranks, std::int64_t parts, Dtype part_dtype, const Pieces& pieces)
    : ranks_(ranks), parts_(parts), part_dtype_(part_dtype), sum_dtype_(compute_dtype(part_dtype)), pieces_(pieces) {
  for (int r = 0; r < ranks.size(); ++r) {
    std::size_t index = 0;
    for (const Span& node : nodes(parts, r, ranks.size())) terms_.push_back({r, node, index++});
  }
  constexpr std::size_t most_window = 4;
  window_ = std::min(most_window, static_cast<std::size_t>(std::max<std::int64_t>(1, pieces.buckets(ranks.rank()))));
  const std::size_t bytes =
      static_cast<std::size_t>(std::min(Pieces::bucket_elements, pieces.of(ranks.rank()).size())) * size_of(sum_dtype_);
  slots_.resize(window_ * terms_.size());
  for (std::size_t i = 0; i < slots_.size(); ++i)
    if (terms_[i % terms_.size()].rank != ranks.rank()) slots_[i].resize(bytes);
  std::size_t height = 0;
  while ((std::int64_t{1} << height) < parts) ++height;
  widened_ = 2 * height + 1;
  scratch_.resize(widened_ + (part_dtype_ == sum_dtype_ ? 0 : terms_.size()));
  for (auto& each : scratch_) each.resize(bytes);
}

/// Returns a term's elements of the bucket, in the dtype of the sums.
const char* OrderedSum::bucket_of(const Term& term, const Span& bucket) const {
  const bool own = term.rank == ranks_.rank();
  const std::size_t bytes = size_of(term.single() ? part_dtype_ : sum_dtype_);
  return static_cast<const char*>(term.values) + (own ? static_cast<std::size_t>(bucket.begin) * bytes : 0);
}

/// Returns the elements of a node; writes to `into` unless the node is a term.
const void* OrderedSum::add(const Span& node, const Span& bucket, std::size_t depth, void* into) {
  const auto term = std::find_if(terms_.begin(), terms_.end(), [&](const Term& each) { return each.node == node; });
  if (term != terms_.end()) {
    const char* values = bucket_of(*term, bucket);
    if (!term->single() || part_dtype_ == sum_dtype_) return values;
    char* wide = scratch(widened_ + static_cast<std::size_t>(term - terms_.begin()));
    read_halves(part_dtype_, values, reinterpret_cast<float*>(wide), bucket.size());
    return wide;
  }
  const std::int64_t middle = middle_of(node);
  const void* left = add({node.begin, middle}, bucket, depth + 1, scratch(2 * depth + 1));
  const void* right = add({middle, node.end}, bucket, depth + 1, scratch(2 * depth + 2));
  add_arrays(sum_dtype_, left, right, into, bucket.size());
  return into;
}

void OrderedSum::run(const std::vector<NodeSum>& mine, void* out, const std::function<void(const Span&)>& finished) {
  Transport& transport = ranks_.transport();
  const int own = ranks_.rank();
  const std::int64_t buckets = pieces_.buckets(own);
  std::vector<std::vector<Transport::Request>> received(window_), sent(window_);
  const auto slot = [&](std::int64_t bucket, std::size_t term) -> std::vector<char>& {
    return slots_[static_cast<std::size_t>(bucket) % window_ * terms_.size() + term];
  };
  const auto receive = [&](std::int64_t k) {
    if (k >= buckets) return;
    for (std::size_t i = 0; i < terms_.size(); ++i)
      if (terms_[i].rank != own)
        received[static_cast<std::size_t>(k) % window_].push_back(
            transport.receive(terms_[i].rank, sum_channel, slot(k, i).data(),
                              static_cast<std::size_t>(pieces_.bucket(own, k).size()) *
                                  size_of(terms_[i].single() ? part_dtype_ : sum_dtype_)));
  };
  const auto wait_for = [&](std::vector<Transport::Request>& requests) {
    for (const Transport::Request request : requests) transport.wait(request);
    requests.clear();
  };
  for (std::int64_t k = 0; k < static_cast<std::int64_t>(window_); ++k) receive(k);
  const std::size_t element = size_of(part_dtype_);
  for (std::int64_t k = 0, most = pieces_.most_buckets(); k < most; ++k) {
    auto& sending = sent[static_cast<std::size_t>(k) % window_];
    wait_for(sending);
    for (int step = 1; step < ranks_.size(); ++step) {  // each rank begins with another neighbour
      const int to = (own + step) % ranks_.size();
      if (k >= pieces_.buckets(to)) continue;
      const Span bucket = pieces_.bucket(to, k);
      for (const NodeSum& each : mine) {
        const std::size_t bytes = size_of(each.values.dtype());
        sending.push_back(transport.send(
            to, sum_channel,
            static_cast<const char*>(each.values.data()) + static_cast<std::size_t>(bucket.begin) * bytes,
            static_cast<std::size_t>(bucket.size()) * bytes));
      }
    }
    if (k >= buckets) continue;
    wait_for(received[static_cast<std::size_t>(k) % window_]);
    for (std::size_t i = 0; i < terms_.size(); ++i)
      terms_[i].values = terms_[i].rank == own ? mine[terms_[i].index].values.data() : slot(k, i).data();
    const Span bucket = pieces_.bucket(own, k);
    char* target = static_cast<char*>(out) + static_cast<std::size_t>(bucket.begin - pieces_.of(own).begin) * element;
    const bool direct = part_dtype_ == sum_dtype_;
    const void* total = add({0, parts_}, bucket, 0, direct ? target : scratch(0));
    if (!direct) write_halves(part_dtype_, static_cast<const float*>(total), target, bucket.size());
    else if (total != target) std::memmove(target, total, static_cast<std::size_t>(bucket.size()) * element);
    receive(k + static_cast<std::int64_t>(window_));
    if (finished) finished(bucket);
  }
  for (auto& each : sent) wait_for(each);
}

// --- the result, everywhere ----------------------------------------------------------------------------------------

Spread::Spread(const Ranks& ranks, const Pieces& pieces, std::size_t element_bytes)
    : ranks_(ranks), pieces_(pieces), element_bytes_(element_bytes),
      slots_(static_cast<std::size_t>(ranks.size() * window * Pieces::bucket_elements) * element_bytes) {}

char* Spread::slot(int rank, std::int64_t bucket) {
  return slots_.data() +
         static_cast<std::size_t>((rank * window + bucket % window) * Pieces::bucket_elements) * element_bytes_;
}

void Spread::run(const Pack& pack, const Unpack& unpack) {
  Transport& transport = ranks_.transport();
  const int own = ranks_.rank(), count = ranks_.size();
  std::vector<std::vector<Transport::Request>> requests(static_cast<std::size_t>(count) * window);
  const auto of = [&](int rank, std::int64_t k) -> std::vector<Transport::Request>& {
    return requests[static_cast<std::size_t>(rank * window + k % window)];
  };
  const auto bytes = [&](const Span& bucket) { return static_cast<std::size_t>(bucket.size()) * element_bytes_; };
  const auto wait_for = [&](std::vector<Transport::Request>& waiting) {
    for (const Transport::Request request : waiting) transport.wait(request);
    waiting.clear();
  };
  const auto receive = [&](int from, std::int64_t k) {
    if (k < pieces_.buckets(from))
      of(from, k).push_back(transport.receive(from, spread_channel, slot(from, k), bytes(pieces_.bucket(from, k))));
  };
  for (std::int64_t k = 0; k < window; ++k)
    for (int from = 0; from < count; ++from)
      if (from != own) receive(from, k);
  for (std::int64_t k = 0, most = pieces_.most_buckets(); k < most; ++k) {
    if (k < pieces_.buckets(own)) {
      wait_for(of(own, k));  // what was sent from this memory before
      const Span bucket = pieces_.bucket(own, k);
      pack(bucket, slot(own, k));
      for (int step = 1; step < count; ++step)
        of(own, k).push_back(transport.send((own + step) % count, spread_channel, slot(own, k), bytes(bucket)));
    }
    for (int step = 1; step < count; ++step) {
      const int from = (own + count - step) % count;
      if (k >= pieces_.buckets(from)) continue;
      wait_for(of(from, k));
      unpack(pieces_.bucket(from, k), slot(from, k));
      receive(from, k + window);
    }
  }
  for (auto& each : requests) wait_for(each);
}

}  // namespace attn
