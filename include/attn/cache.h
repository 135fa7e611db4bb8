// include/attn/cache.h: keys and values that stay between calls: sequences grow, fork, shrink and forget, in pages of
// one pool.
#pragma once
#include <attn/attention.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace attn {

/// How a cache keeps the elements of a row.
enum class KvStorage {
  same,  ///< as they are
  int8,  ///< rounded to 8 bits with a scale a group of elements
};

struct KvCacheOptions {
  std::int64_t key_heads = 0;
  std::int64_t value_heads = 0;  ///< 0: as key_heads
  std::int64_t head_dim = 0;     ///< D of k
  std::int64_t value_dim = 0;    ///< Dv of v; 0: as head_dim
  std::int64_t page_rows = 16;   ///< rows of a page: 16, 32, 64, 128 or 256. 0: one block a sequence, which grows
  std::int64_t pages = 0;        ///< pages of the pool; with page_rows = 0 the number of blocks
  Dtype dtype = Dtype::f32;      ///< of k, v and q: f32, f64, bf16 or f16
  KvStorage storage = KvStorage::same;
  std::int64_t scale_group = 0;  ///< int8: neighbouring elements of a row that share a scale; 0: the whole row
};

/// A sequence in a cache. A value; it notices when its sequence was released or belongs to another cache.
struct KvSequence {
  std::uint32_t cache = 0;  ///< 0: of no cache
  std::uint32_t index = 0;
  std::uint32_t generation = 0;
  friend bool operator==(const KvSequence&, const KvSequence&) = default;
};

/// An append that the pool has no room for: release, evict or truncate something, then try again.
class ATTN_API KvCacheFull : public Error {
 public:
  using Error::Error;
};

/// Keys and values of many sequences, of one layer of a model.
///
/// Position  of a key: how many were appended before it. It stays when older keys are evicted.
/// Sharing   `fork` shares pages; a shared page is copied when one of its sequences appends to it.
/// Errors    ValueError for a released or foreign sequence and for a position out of range, ShapeError, DtypeError,
///           KvCacheFull, std::bad_alloc. A call that throws has changed nothing.
/// Moving    leaves a cache that holds nothing: no sequence is alive in it, and what needs one is a ValueError.
/// Threads   const functions and attention_cached may run at the same time; a call that changes the cache must be
///           alone.
class ATTN_API KvCache {
 public:
  explicit KvCache(const KvCacheOptions& options);
  ~KvCache();
  KvCache(KvCache&&) noexcept;
  KvCache& operator=(KvCache&&) noexcept;

  /// A new sequence without keys.
  KvSequence create();
  /// A sequence with the same keys, at the cost of its page table.
  KvSequence fork(KvSequence sequence);
  /// Frees the pages that no other sequence shares.
  void release(KvSequence sequence);

  /// k [Hk, T, D], v [Hv, T, Dv]: T keys more.
  void append(KvSequence sequence, const Tensor& k, const Tensor& v);
  /// k [B, Hk, T, D], v [B, Hv, T, Dv]: T keys more for each of B sequences, all or none.
  void append(const std::vector<KvSequence>& sequences, const Tensor& k, const Tensor& v);
  /// Keeps the keys at positions below `length`.
  void truncate(KvSequence sequence, std::int64_t length);
  /// Drops the keys at positions below `position`: hidden from now on, and their whole pages free. For a window of w
  /// keys: evict(s, max(0, length(s) - w)).
  void evict(KvSequence sequence, std::int64_t position);

  /// Position of the next key.
  std::int64_t length(KvSequence sequence) const;
  /// First position that was not evicted.
  std::int64_t first(KvSequence sequence) const;
  /// Whether the handle still stands for a sequence.
  bool alive(KvSequence sequence) const noexcept;
  std::int64_t free_pages() const noexcept;
  const KvCacheOptions& options() const;

  struct Rows {
    /// [B, Hk, T, D] and [B, Hv, T, Dv], T the greatest length; 0 where a key is evicted or beyond the length
    Tensor k, v;
  };
  /// The keys as tensors (a copy), of the cache's dtype or another floating one.
  Rows gather(const std::vector<KvSequence>& sequences) const;
  Rows gather(const std::vector<KvSequence>& sequences, Dtype dtype) const;

  struct State;
  const State& state() const;

 private:
  State& mutable_state();
  std::unique_ptr<State> state_;
};

/// attention() over cached keys: q [B, Hq, Tq, D], row b over sequences[b], each of its own length -> [B, Hq, Tq, Dv].
///
/// Positions  the rows stand at the end of their sequence, the last at length - 1, unless `query_start` says otherwise.
///            So append the new keys first, then attend with Mask::causal(); Align::top_left without `query_start` is a
///            ValueError. `Tk` of a dense mask or bias is the greatest length.
/// Evicted    keys are hidden as by ~Mask::prefix(first): positions, and the blocks in which keys are summed, count
///            from the sequence's first key.
/// Errors     as attention() and KvCache; ValueError when key_lengths or key_start is given.
/// Gradient   none: a cache has no history.
/// Bits       those of attention() on the same keys without a cache; those of int8 as on the dequantised keys, in bf16
///            as docs/numerics.md section 3.8 has it.
ATTN_API AttentionResult attention_cached(const Tensor& q, const KvCache& cache,
                                          const std::vector<KvSequence>& sequences,
                                          const AttentionOptions& options = {});

}  // namespace attn
