// include/attn/cache.h: keeps keys and values between calls (a KV cache) in the pages of one pool; sequences append,
// fork, truncate and evict.
#pragma once
#include <attn/attention.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace attn {

/// How a cache stores the elements of a row.
enum class KvStorage {
  same,  ///< in the dtype of the rows
  int8,  ///< rounded to 8 bits, with one scale per group of elements
};

struct KvCacheOptions {
  std::int64_t key_heads = 0;
  std::int64_t value_heads = 0;  ///< 0: same as key_heads
  std::int64_t head_dim = 0;     ///< D of k
  std::int64_t value_dim = 0;    ///< Dv of v; 0: same as head_dim
  std::int64_t page_rows = 16;   ///< rows of a page: 16, 32, 64, 128 or 256. 0: one growing block per sequence
  std::int64_t pages = 0;        ///< pages in the pool; with page_rows = 0 the number of blocks
  Dtype dtype = Dtype::f32;      ///< dtype of k, v and q: f32, f64, bf16 or f16
  KvStorage storage = KvStorage::same;
  std::int64_t scale_group = 0;  ///< int8: number of adjacent elements that share a scale; 0: the whole row
  /// A value is the first value_dim elements of its key, so only keys are stored: latent attention
  /// (latent_attention.h). Not with int8.
  bool values_in_keys = false;
};

/// A handle to a sequence in a cache. Using it after the sequence was released, or with another cache, is an error.
struct KvSequence {
  std::uint32_t cache = 0;  ///< id of the cache; 0: none
  std::uint32_t index = 0;
  std::uint32_t generation = 0;
  friend bool operator==(const KvSequence&, const KvSequence&) = default;
};

/// Thrown by an append for which the pool has no room: release, evict or truncate a sequence, then try again.
class ATTN_API KvCacheFull : public Error {
 public:
  using Error::Error;
};

/// Holds the keys and values of many sequences, for one layer of a model.
///
/// Position  of a key: the number of keys before it in its sequence, evicted ones included.
/// Sharing   `fork` shares pages; an append to a shared page copies it first.
/// Errors    ValueError for a sequence that was released or belongs to another cache, and for a position out of range;
///           ShapeError, DtypeError, KvCacheFull, std::bad_alloc. A call that throws has changed nothing.
/// Moving    leaves an empty cache: it has no sequences, and calls that need a sequence throw ValueError.
/// Threads   const functions and attention_cached may run at the same time; a call that changes the cache must run
///           alone.
class ATTN_API KvCache {
 public:
  explicit KvCache(const KvCacheOptions& options);
  ~KvCache();
  KvCache(KvCache&&) noexcept;
  KvCache& operator=(KvCache&&) noexcept;

  /// Creates a sequence without keys.
  KvSequence create();
  /// Creates a sequence with the same keys; copies only the page table.
  KvSequence fork(KvSequence sequence);
  /// Removes the sequence and frees the pages that no other sequence shares.
  void release(KvSequence sequence);

  /// Appends T keys and values: k [Hk, T, D], v [Hv, T, Dv].
  void append(KvSequence sequence, const Tensor& k, const Tensor& v);
  /// Appends T keys and values to each of B sequences, or to none: k [B, Hk, T, D], v [B, Hv, T, Dv].
  void append(const std::vector<KvSequence>& sequences, const Tensor& k, const Tensor& v);
  /// With `values_in_keys`: appends keys, which hold their values.
  void append(KvSequence sequence, const Tensor& k);
  void append(const std::vector<KvSequence>& sequences, const Tensor& k);
  /// Keeps only the keys at positions below `length`.
  void truncate(KvSequence sequence, std::int64_t length);
  /// Masks the keys at positions below `position` from now on, and frees the pages that hold only such keys. For a
  /// window of w keys: evict(s, max(0, length(s) - w)).
  void evict(KvSequence sequence, std::int64_t position);

  /// Returns the position of the next key.
  std::int64_t length(KvSequence sequence) const;
  /// Returns the first position that was not evicted.
  std::int64_t first(KvSequence sequence) const;
  /// Returns whether the handle still refers to a sequence.
  bool alive(KvSequence sequence) const noexcept;
  std::int64_t free_pages() const noexcept;
  const KvCacheOptions& options() const;

  struct Rows {
    /// k [B, Hk, T, D], v [B, Hv, T, Dv]; T is the greatest length. Evicted keys and keys beyond a sequence's length
    /// are 0. With `values_in_keys` v is a view of k.
    Tensor k, v;
  };
  /// Returns a copy of the keys and values as tensors, in the cache's dtype or another floating dtype.
  Rows gather(const std::vector<KvSequence>& sequences) const;
  Rows gather(const std::vector<KvSequence>& sequences, Dtype dtype) const;

  struct State;
  const State& state() const;

 private:
  State& mutable_state();
  std::unique_ptr<State> state_;
};

/// Computes attention() over cached keys: q [B, Hq, Tq, D] -> [B, Hq, Tq, Dv]. Batch item b uses sequences[b], which
/// may have any length.
///
/// Positions  By default the rows are at the end of their sequence, the last row at position length - 1; `query_start`
///            overrides this. So append the new keys first, then attend with Mask::causal(). Align::top_left without
///            `query_start` is a ValueError. `Tk` of a dense mask or bias is the greatest length.
/// Evicted    keys are masked as by ~Mask::prefix(first). Positions, and the blocks in which keys are summed, count
///            from the sequence's first key, evicted or not.
/// Errors     as attention() and KvCache; ValueError when key_lengths or key_start is given.
/// Gradient   none: the cache records no gradient history, so a backward pass that reaches the results throws
///            ValueError.
/// Bits       those of attention() on the same keys without a cache; with int8 those of attention() on the dequantised
///            keys (bf16: docs/numerics.md section 3.8).
ATTN_API AttentionResult attention_cached(const Tensor& q, const KvCache& cache,
                                          const std::vector<KvSequence>& sequences,
                                          const AttentionOptions& options = {});

}  // namespace attn
