// src/attention/cache/cache_state.h: what a cache holds: the pool, the rows of K and V, and the sequences with their
// page tables.
#pragma once
#include <attn/cache.h>

#include "attention/cache/cache_pool.h"
#include "attention/cache/cache_rows.h"

#include <string>
#include <utility>
#include <vector>

namespace attn {

struct KvCache::State {
  static constexpr std::int32_t evicted = -1;  // in a page table

  struct Sequence {
    std::vector<std::int32_t> table;  // ceil(length / page_rows) pages
    std::int64_t length = 0, first = 0;
    std::uint32_t generation = 0;
    bool alive = false;
  };

  KvCacheOptions options;
  std::uint32_t id = 0;  // of the cache, above 0
  std::int64_t page_rows = 0;
  PagePool pool;
  PagedRows k, v;
  std::vector<Sequence> sequences;
  bool lost_history = false;          // rows were appended while a gradient by them was wanted
  std::vector<std::uint32_t> unused;  // indices of sequences that were released; as much room as `sequences`

  explicit State(const KvCacheOptions& checked);
  RowLayout layout(bool values) const;

  /// The sequence; ValueError in the name of `function`, which calls it `who`.
  const Sequence& find(const char* function, KvSequence sequence, const std::string& who = "the sequence") const;
  Sequence& find(const char* function, KvSequence sequence, const std::string& who = "the sequence") {
    return const_cast<Sequence&>(std::as_const(*this).find(function, sequence, who));
  }
  /// find() for a whole batch, called sequences[0], sequences[1], ...
  std::vector<const Sequence*> find_all(const char* function, const std::vector<KvSequence>& handles) const;

  /// Remembers that a gradient was wanted by rows that the cache keeps without their history.
  void note_history(const Tensor& new_k, const Tensor& new_v);
  /// T rows more for each sequence of k [B, Hk, T, D] and v [B, Hv, T, Dv], all checked.
  void append(const std::vector<Sequence*>& batch, const Tensor& new_k, const Tensor& new_v);
  KvCache::Rows gather(const std::vector<const Sequence*>& batch, Dtype dtype) const;
};

}  // namespace attn
