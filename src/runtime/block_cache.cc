// src/runtime/block_cache.cc: keeps a list of freed blocks for each size.
#include "runtime/block_cache.h"

#include "runtime/futex.h"
#include "runtime/system_blocks.h"

#include <algorithm>
#include <new>

namespace attn::runtime {

BlockCache& block_cache() {
  static constinit BlockCache blocks;
  return blocks;
}

bool BlockCache::lock() {
  for (int turn = 0; turn < 64; ++turn) {
    if (!locked_.exchange(true, std::memory_order_acquire)) return true;
    spin_pause();
  }
  return false;
}

void* BlockCache::take(std::size_t size) {
  const std::size_t used = used_.fetch_add(size, std::memory_order_relaxed) + size;
  if (kept_.load(std::memory_order_relaxed) == 0 || !lock()) return nullptr;
  Block* found = nullptr;
  Block* unwanted = nullptr;
  if (class_of(size) < classes && lists_[class_of(size)] != nullptr) {
    found = lists_[class_of(size)];
    lists_[class_of(size)] = found->next;
    kept_.fetch_sub(size, std::memory_order_relaxed);
  } else {
    unwanted = surplus(std::max(used, most_used_.load(std::memory_order_relaxed)));
  }
  locked_.store(false, std::memory_order_release);
  free(unwanted);
  return found;
}

bool BlockCache::keep(void* block, std::size_t size) {
  // Memory in use is highest just before a block is freed. The maximum is recorded here and not in `take`, because the
  // allocation after `take` may fail.
  const std::size_t most_now = used_.fetch_sub(size, std::memory_order_relaxed), used = most_now - size;
  std::size_t before = most_used_.load(std::memory_order_relaxed);
  while (before < most_now && !most_used_.compare_exchange_weak(before, most_now, std::memory_order_relaxed)) {}
  const std::size_t kept = kept_.load(std::memory_order_relaxed) + size;
  if (class_of(size) >= classes || kept > most || used + kept > most_used_.load(std::memory_order_relaxed) || !lock())
    return false;
  Block*& list = lists_[class_of(size)];
  list = ::new (block) Block{list, size};
  kept_.fetch_add(size, std::memory_order_relaxed);
  locked_.store(false, std::memory_order_release);
  return true;
}

void BlockCache::release() {
  if (!lock()) return;
  Block* const all = surplus(0);
  locked_.store(false, std::memory_order_release);
  free(all);
}

BlockCache::Block* BlockCache::surplus(std::size_t limit) {
  Block* out = nullptr;
  for (int c = classes - 1; c >= 0; --c) {
    const std::size_t power = least << (c / 8), size = power + power / 8 * static_cast<std::size_t>(c % 8);
    while (lists_[c] != nullptr &&
           (limit == 0 || used_.load(std::memory_order_relaxed) + kept_.load(std::memory_order_relaxed) > limit)) {
      Block* const block = lists_[c];
      lists_[c] = block->next;
      block->next = out;
      out = block;
      kept_.fetch_sub(size, std::memory_order_relaxed);
    }
  }
  return out;
}

void BlockCache::free(Block* list) {
  while (list != nullptr) {
    Block* const next = list->next;
    delete_block(list, list->size);
    list = next;
  }
}

}  // namespace attn::runtime
