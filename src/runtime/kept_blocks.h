// src/runtime/kept_blocks.h: freed memory kept for the next block of its size, so that its pages are not given back and
// faulted in again.
#pragma once
#include <atomic>
#include <cstddef>

namespace attn::runtime {

/// A training step frees and asks for the same hundreds of megabytes again and again; between two steps the C library
/// gives them back to the system, which clears each page anew: a quarter of a small model's step. Blocks of 64 KiB and
/// more wait here instead, at most 1 GiB of them, and never so many that all blocks together are more than were once in
/// use at the same time.
///  A lock that is not free is passed by: then memory comes from and goes to the C library. So no thread waits, and
/// none does in a child that was forked while another thread was here.
class KeptBlocks {
 public:
  static constexpr std::size_t least = std::size_t{64} << 10, most = std::size_t{1} << 30;

  /// What a block for `bytes` (least or more) occupies: eight sizes between two powers of two; above `most` no more
  /// than asked for.
  static constexpr std::size_t size_for(std::size_t bytes);
  /// A kept block of this size, or null: the caller then allocates one of it, or calls `give_up` where there is none.
  void* take(std::size_t size);
  void give_up(std::size_t size) { used_.fetch_sub(size, std::memory_order_relaxed); }
  /// Whether the block is kept; else the caller frees it.
  bool keep(void* block, std::size_t size);
  /// Frees all that is kept.
  void release();
  std::size_t bytes() const { return kept_.load(std::memory_order_relaxed); }

 private:
  struct Block {
    Block* next;
    std::size_t size;
  };
  static constexpr int classes = 8 * 14 + 1;  // from `least` to `most`
  static constexpr int class_of(std::size_t size);
  bool lock();
  /// Out of the lists, the largest first, until all blocks are `limit` or less; a list.
  Block* surplus(std::size_t limit);
  static void free(Block* list);

  std::atomic<bool> locked_{false};
  std::atomic<std::size_t> used_{0}, most_used_{0}, kept_{0};  // bytes
  Block* lists_[classes] = {};
};

KeptBlocks& kept_blocks();

constexpr int KeptBlocks::class_of(std::size_t size) {
  if (size > most) return classes;  // not kept
  int power = 0;
  while ((least << (power + 1)) <= size) ++power;
  return 8 * power + static_cast<int>((size - (least << power)) / (least << power >> 3));
}

constexpr std::size_t KeptBlocks::size_for(std::size_t bytes) {
  if (bytes > most) return bytes;
  std::size_t power = least;
  while (power <= bytes / 2) power *= 2;
  const std::size_t step = power / 8;
  return (bytes + step - 1) / step * step;
}

}  // namespace attn::runtime
