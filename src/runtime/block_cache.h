// src/runtime/block_cache.h: keeps freed blocks for later allocations of the same size, so that their pages are not
// returned to the system and faulted in again.
#pragma once
#include <atomic>
#include <cstddef>

namespace attn::runtime {

/// A training step frees and allocates the same hundreds of megabytes again and again. Between two steps the C library
/// would return them to the system, which clears each page again: a quarter of the time of a small model's step. Blocks
/// of 64 KiB and more are kept here instead, at most 1 GiB of them. The used and kept blocks together do not exceed the
/// largest amount that was in use at one time, except while threads race. If the lock is not free within 64 tries,
/// blocks come from the system and go back to it. So no thread waits for ever, not even in a child that was forked
/// while another thread held the lock.
class BlockCache {
 public:
  static constexpr std::size_t least = std::size_t{64} << 10, most = std::size_t{1} << 30;

  /// Returns the size of the block for `bytes`, which must be at least `least`. There are eight sizes between two
  /// powers of two; above `most` the size is `bytes` itself.
  static constexpr std::size_t size_for(std::size_t bytes);
  /// Counts `size` as used, and returns a kept block of this size or null. After null the caller allocates a block of
  /// this size, or calls `give_up` if that fails.
  void* take(std::size_t size);
  void give_up(std::size_t size) { used_.fetch_sub(size, std::memory_order_relaxed); }
  /// Counts the block as no longer used. Keeps it and returns true, or returns false; then the caller frees it.
  bool keep(void* block, std::size_t size);
  /// Frees all kept blocks, or none if the lock is taken.
  void release();
  std::size_t bytes() const { return kept_.load(std::memory_order_relaxed); }

 private:
  struct Block {
    Block* next;
    std::size_t size;
  };
  static constexpr int classes = 8 * 14 + 1;  // for sizes from `least` to `most`
  static constexpr int class_of(std::size_t size);
  bool lock();
  /// Removes blocks from the lists, the largest first, until used and kept blocks are at most `limit` bytes. Returns
  /// the removed blocks as a list.
  Block* surplus(std::size_t limit);
  static void free(Block* list);

  std::atomic<bool> locked_{false};
  std::atomic<std::size_t> used_{0}, most_used_{0}, kept_{0};  // bytes
  Block* lists_[classes] = {};
};

BlockCache& block_cache();

constexpr int BlockCache::class_of(std::size_t size) {
  if (size > most) return classes;  // this size is not kept
  int power = 0;
  while ((least << (power + 1)) <= size) ++power;
  return 8 * power + static_cast<int>((size - (least << power)) / (least << power >> 3));
}

constexpr std::size_t BlockCache::size_for(std::size_t bytes) {
  if (bytes > most) return bytes;
  std::size_t power = least;
  while (power <= bytes / 2) power *= 2;
  const std::size_t step = power / 8;
  return (bytes + step - 1) / step * step;
}

}  // namespace attn::runtime
