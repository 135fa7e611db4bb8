// src/runtime/memory.cc: allocates aligned memory, and counts the bytes in use and their maximum.
#include "runtime/memory.h"

#include "runtime/block_cache.h"
#include "runtime/system_blocks.h"

#include <attn/memory.h>

#include <atomic>
#include <memory>
#include <new>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace attn::runtime {
namespace {

std::atomic<std::size_t> now_allocated{0};
std::atomic<std::size_t> most_allocated{0};

/// The header is directly before the data. Its size is a multiple of the alignment, so that the data stays aligned. The
/// space that the caller requested in front lies before the header.
struct alignas(alignment) Header {
  std::size_t bytes;
  std::size_t front;
  void* memory;  // the pointer that the C library returned

  void* block() { return reinterpret_cast<char*>(this) - front; }
  std::size_t block_bytes() const { return front + sizeof(Header) + bytes; }
};

// Under a sanitizer no block is kept, so that the sanitizer finds a use after free.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool keeps = false;
#elif defined(__has_feature)  // clang
constexpr bool keeps = !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer);
#else
constexpr bool keeps = true;
#endif

/// Returns whether `take` aligns the block itself, inside memory with the C library's default alignment. Aligned blocks
/// of the C library take five times as long.
bool aligned_here(std::size_t bytes) { return keeps && bytes < BlockCache::least; }
constexpr std::size_t slack = alignment - __STDCPP_DEFAULT_NEW_ALIGNMENT__;

/// Returns a kept block or a new block of `bytes`, header included.
void* take_block(std::size_t bytes) {
  if (!keeps) return ::operator new(bytes, std::align_val_t(alignment));
  const std::size_t size = BlockCache::size_for(bytes);
  if (void* block = block_cache().take(size)) return block;
  try {
    return new_block(size, bytes);
  } catch (const std::bad_alloc&) { block_cache().release(); }
  try {
    return new_block(size, bytes);
  } catch (const std::bad_alloc&) {
    block_cache().give_up(size);
    throw;
  }
}
Header* take(std::size_t front, std::size_t bytes) {
  const std::size_t all = front + sizeof(Header) + bytes;
  void* const memory = aligned_here(all) ? ::operator new(all + slack) : take_block(all);
  return ::new (reinterpret_cast<void*>(aligned(reinterpret_cast<std::uintptr_t>(memory)) + front))
      Header{bytes, front, memory};
}
void give_block(void* block, std::size_t bytes) noexcept {
  if (!keeps) return ::operator delete(block, std::align_val_t(alignment));
  const std::size_t size = BlockCache::size_for(bytes);
  if (!block_cache().keep(block, size)) delete_block(block, size);
}

}  // namespace

void* allocate(std::size_t bytes, std::size_t front) {
  // The C++ library would round the largest sizes up to 0.
  if (bytes > most_bytes) throw std::bad_alloc();
  Header* const header = take(aligned(front), bytes);
  const std::size_t now = now_allocated.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  std::size_t most = most_allocated.load(std::memory_order_relaxed);
  while (most < now && !most_allocated.compare_exchange_weak(most, now, std::memory_order_relaxed)) {}
  return header + 1;
}

void deallocate(void* data) noexcept {
  if (!data) return;
  Header* header = static_cast<Header*>(data) - 1;
  const std::size_t bytes = header->block_bytes();
  now_allocated.fetch_sub(header->bytes, std::memory_order_relaxed);
  aligned_here(bytes) ? ::operator delete(header->memory) : give_block(header->block(), bytes);
}

void* front_of(void* data, std::size_t front) noexcept {
  return static_cast<char*>(data) - sizeof(Header) - aligned(front);
}
void* behind_front(void* front_data, std::size_t front) noexcept {
  return static_cast<char*>(front_data) + sizeof(Header) + aligned(front);
}

std::size_t allocated_bytes() noexcept { return now_allocated.load(std::memory_order_relaxed); }
std::size_t peak_bytes() noexcept { return most_allocated.load(std::memory_order_relaxed); }
void reset_peak() noexcept { most_allocated.store(allocated_bytes(), std::memory_order_relaxed); }

}  // namespace attn::runtime

namespace attn {

std::size_t release_free_memory() {
  runtime::BlockCache& kept = runtime::block_cache();
  const std::size_t before = kept.bytes();
  // Another thread may hold the lock of the lists for a moment; in a forked child it may be held for ever.
  for (int tries = 0; tries < 1000 && kept.bytes() != 0; ++tries) kept.release();
  const std::size_t after = kept.bytes();
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
  return before > after ? before - after : 0;
}

}  // namespace attn
