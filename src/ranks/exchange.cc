// src/ranks/exchange.cc: sends arrays bucket by bucket, and adds buckets at their owner while the next ones are in
// flight.
#include "ranks/exchange.h"

#include "kernels/rows/target.h"
#include "runtime/floating_point.h"
#include "tensor/blocks.h"
#include "tensor/rows.h"

#include <algorithm>
#include <cstring>

namespace attn {
namespace {

// Messages of a result and those of a sum may cross, and so may those of the nodes of a rank.
constexpr int spread_channel = 2, sum_channel = 8;

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

Buckets::Buckets(std::int64_t count, int ranks, const std::function<std::int64_t(std::int64_t)>& cut) : ranks_(ranks) {
  const std::int64_t round = ranks * bucket_elements, rounds = std::max<std::int64_t>(1, (count + round - 1) / round),
                     buckets = rounds * ranks;
  for (std::int64_t i = 0; i < buckets; ++i) cuts_.push_back(cut(count / buckets * i + count % buckets * i / buckets));
  cuts_.push_back(count);
}

Buckets::Buckets(std::int64_t count, int ranks)
    : Buckets(count, ranks, [](std::int64_t element) {
        constexpr std::int64_t block = 4096;
        return element / block * block;
      }) {}

std::int64_t Buckets::most() const {
  std::int64_t most = 0;
  for (std::size_t i = 1; i < cuts_.size(); ++i) most = std::max(most, cuts_[i] - cuts_[i - 1]);
  return most;
}

// --- the sum -------------------------------------------------------------------------------------------------------

std::vector<Span> OrderedSum::nodes(std::int64_t parts, int rank, int ranks) {
  return nodes_inside({0, parts}, share_of(parts, rank, ranks));
}

OrderedSum::OrderedSum(const Ranks& ranks, std::int64_t parts, Dtype part_dtype, const Buckets& buckets)
    : ranks_(ranks), parts_(parts), part_dtype_(part_dtype), sum_dtype_(compute_dtype(part_dtype)), buckets_(buckets) {
  for (int r = 0; r < ranks.size(); ++r) {
    std::size_t index = 0;
    for (const Span& node : nodes(parts, r, ranks.size())) {
      terms_.push_back({r, node, index++});
      if (r == ranks.rank()) mine_.push_back({.values = {}, .element = element_of(terms_.back())});
    }
  }
  constexpr std::size_t most_window = 4;
  window_ = std::min(most_window, static_cast<std::size_t>(buckets.rounds()));
  const std::size_t bytes = static_cast<std::size_t>(buckets.most()) * size_of(sum_dtype_);
  slots_.resize(window_ * terms_.size());
  for (std::size_t i = 0; i < slots_.size(); ++i)
    if (terms_[i % terms_.size()].rank != ranks.rank()) slots_[i].resize(bytes);
  std::size_t height = 0;
  while ((std::int64_t{1} << height) < parts) ++height;
  widened_ = 2 * height + 1;
  scratch_.resize(widened_ + (part_dtype_ == sum_dtype_ ? 0 : terms_.size()));
  for (auto& each : scratch_) each.resize(bytes);
  received_.resize(window_);
  for (auto& each : received_) each.reserve(terms_.size());
}

/// Returns a term's elements of the bucket, in the dtype of the sums.
const char* OrderedSum::bucket_of(const Term& term, const Span& bucket) const {
  const bool own = term.rank == ranks_.rank();
  const std::size_t bytes = size_of(term.single() ? part_dtype_ : sum_dtype_);
  return static_cast<const char*>(term.values) + (own ? static_cast<std::size_t>(bucket.begin) * bytes : 0);
}

/// Returns the elements of a node. They are computed into `into` unless the node is a term.
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

void OrderedSum::start(void* out) {
  out_ = static_cast<char*>(out);
  next_ = buckets_.rounds() - 1;
  for (Mine& each : mine_) each.next = next_;
  for (std::int64_t n = 0; n < static_cast<std::int64_t>(window_); ++n) receive(next_ - n);
}

void OrderedSum::receive(std::int64_t round) {
  if (round < 0) return;
  const Span bucket = buckets_.bucket(ranks_.rank(), round);
  if (bucket.size() == 0) return;
  for (std::size_t i = 0; i < terms_.size(); ++i) {
    const Term& term = terms_[i];
    if (term.rank == ranks_.rank()) continue;
    received_[slot(round)].push_back(
        ranks_.transport().receive(term.rank, sum_channel + static_cast<int>(term.index), memory(round, i),
                                   static_cast<std::size_t>(bucket.size()) * element_of(term)));
  }
}

/// Begins to send the next round of a node.
void OrderedSum::send(Mine& mine, std::size_t index, bool failed) {
  const int own = ranks_.rank(), count = ranks_.size();
  for (int step = 1; step < count; ++step) {  // each rank begins with another neighbour
    const int to = (own + step) % count;
    const Span bucket = buckets_.bucket(to, mine.next);
    if (bucket.size() == 0) continue;
    const char* values =
        failed ? scratch(0)
               : static_cast<const char*>(mine.values.data()) + static_cast<std::size_t>(bucket.begin) * mine.element;
    sent_.push_back(ranks_.transport().send(to, sum_channel + static_cast<int>(index), values,
                                            static_cast<std::size_t>(bucket.size()) * mine.element));
  }
  --mine.next;
}

void OrderedSum::send_from(std::size_t index, std::int64_t first) {
  Mine& mine = mine_[index];
  while (mine.next >= 0 && buckets_.begin(mine.next) >= first) send(mine, index, /*failed=*/false);
}

void OrderedSum::advance() {
  const runtime::DefaultFloatingPoint floating_point;  // between parts of a call it may be another
  Transport& transport = ranks_.transport();
  transport.progress();
  while (!sent_.empty() && transport.done(sent_.front())) sent_.pop_front();
  while (next_ >= 0 && std::all_of(mine_.begin(), mine_.end(), [&](const Mine& each) { return each.next < next_; })) {
    auto& waiting = received_[slot(next_)];
    while (!waiting.empty() && transport.done(waiting.back())) waiting.pop_back();
    if (!waiting.empty()) return;
    add_round({});
  }
}

void OrderedSum::finish(bool failed, const std::function<void(const Span&)>& finished) {
  Transport& transport = ranks_.transport();
  while (next_ >= 0) {
    for (std::size_t i = 0; i < mine_.size(); ++i)
      while (mine_[i].next >= 0 && mine_[i].next > next_ - static_cast<std::int64_t>(window_))
        send(mine_[i], i, failed);
    auto& waiting = received_[slot(next_)];
    for (const Transport::Request request : waiting) transport.wait(request);
    waiting.clear();
    if (failed) receive(next_-- - static_cast<std::int64_t>(window_));
    else add_round(finished);
  }
  for (const Transport::Request request : sent_) transport.wait(request);
  sent_.clear();
  for (Mine& each : mine_) each.values = {};
}

/// Adds this rank's bucket of the next round, which all terms have, and makes room for another one.
void OrderedSum::add_round(const std::function<void(const Span&)>& finished) {
  const Span bucket = buckets_.bucket(ranks_.rank(), next_);
  if (bucket.size() > 0) {
    for (std::size_t i = 0; i < terms_.size(); ++i)
      terms_[i].values = terms_[i].rank == ranks_.rank() ? mine_[terms_[i].index].values.data() : memory(next_, i);
    const std::size_t element = size_of(part_dtype_);
    char* target = out_ + static_cast<std::size_t>(bucket.begin) * element;
    const bool direct = part_dtype_ == sum_dtype_;
    const void* total = add({0, parts_}, bucket, 0, direct ? target : scratch(0));
    if (!direct) write_halves(part_dtype_, static_cast<const float*>(total), target, bucket.size());
    else if (total != target) std::memmove(target, total, static_cast<std::size_t>(bucket.size()) * element);
    if (finished) finished(bucket);
  }
  receive(next_ - static_cast<std::int64_t>(window_));
  --next_;
}

// --- the result, everywhere ----------------------------------------------------------------------------------------

Spread::Spread(const Ranks& ranks, const Buckets& buckets, std::size_t element_bytes)
    : ranks_(ranks), buckets_(buckets), element_bytes_(element_bytes),
      slots_(static_cast<std::size_t>(ranks.size() * window * buckets.most()) * element_bytes) {}

char* Spread::slot(int rank, std::int64_t bucket) {
  return slots_.data() + static_cast<std::size_t>((rank * window + bucket % window) * buckets_.most()) * element_bytes_;
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
  const std::int64_t rounds = buckets_.rounds();
  const auto receive = [&](int from, std::int64_t k) {
    if (k >= rounds || buckets_.bucket(from, k).size() == 0) return;
    of(from, k).push_back(transport.receive(from, spread_channel, slot(from, k), bytes(buckets_.bucket(from, k))));
  };
  for (std::int64_t k = 0; k < window; ++k)
    for (int from = 0; from < count; ++from)
      if (from != own) receive(from, k);
  for (std::int64_t k = 0; k < rounds; ++k) {
    if (const Span bucket = buckets_.bucket(own, k); bucket.size() > 0) {
      wait_for(of(own, k));  // what was sent from this memory before
      pack(bucket, slot(own, k));
      for (int step = 1; step < count; ++step)
        of(own, k).push_back(transport.send((own + step) % count, spread_channel, slot(own, k), bytes(bucket)));
    }
    for (int step = 1; step < count; ++step) {
      const int from = (own + count - step) % count;
      if (const Span bucket = buckets_.bucket(from, k); bucket.size() > 0) {
        wait_for(of(from, k));
        unpack(bucket, slot(from, k));
      }
      receive(from, k + window);
    }
  }
  for (auto& each : requests) wait_for(each);
}

}  // namespace attn
