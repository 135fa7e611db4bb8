// src/attention/cache/cache_state.h: holds the state of a cache: the page pool, the rows of K and V, and the sequences
// with their page tables.
#pragma once
#include <attn/cache.h>

#include "attention/cache/cache_pool.h"
#include "attention/cache/cache_rows.h"

#include <string>
#include <utility>
#include <vector>

namespace attn {

struct KvCache::State {
  static constexpr std::int32_t evicted = -1;  // page table entry of an evicted page

  struct Sequence {
    std::vector<std::int32_t> table;  // the page of each page_rows rows: ceil(length / page_rows) entries
    std::int64_t length = 0, first = 0;
    std::int64_t sinks = 0;  // keys at the beginning that are kept though they are below `first`
    std::uint32_t generation = 0;
    bool alive = false;
  };

  KvCacheOptions options;
  std::uint32_t id = 0;  // id of the cache, above 0
  std::int64_t page_rows = 0;
  PagePool pool;
  PagedRows k, v;  // v has no heads if values are parts of keys
  std::vector<Sequence> sequences;
  bool lost_history = false;          // rows that require a gradient were appended
  std::vector<std::uint32_t> unused;  // indices of released sequences; has room for all, so that release cannot fail

  explicit State(const KvCacheOptions& checked);
  RowLayout layout(bool values) const;

  /// Returns the sequence. Throws ValueError for an invalid handle; the text names `function` as the caller and `who`
  /// as the sequence.
  const Sequence& find(const char* function, KvSequence sequence, const std::string& who = "the sequence") const;
  Sequence& find(const char* function, KvSequence sequence, const std::string& who = "the sequence") {
    return const_cast<Sequence&>(std::as_const(*this).find(function, sequence, who));
  }
  /// Calls find() for a whole batch, with the names sequences[0], sequences[1], ...
  std::vector<const Sequence*> find_all(const char* function, const std::vector<KvSequence>& handles) const;

  /// Sets lost_history if the appended rows require a gradient, because the cache stores them without history.
  void note_history(const Tensor& new_k, const Tensor& new_v);
  /// Appends T rows to each sequence: k [B, Hk, T, D] and v [B, Hv, T, Dv], already checked; v is undefined if values
  /// are parts of keys.
  void append(const std::vector<Sequence*>& batch, const Tensor& new_k, const Tensor& new_v);
  /// Without pages: returns the rows of the blocks that hold so many, and makes the blocks that large.
  std::int64_t block_rows(std::int64_t rows) const;
  void grow(std::int64_t block);
  /// Masks the keys from `sinks` to `position`, and frees their pages.
  void evict(KvSequence sequence, std::int64_t position, std::int64_t sinks);
  KvCache::Rows gather(const std::vector<const Sequence*>& batch, Dtype dtype) const;
};

}  // namespace attn
