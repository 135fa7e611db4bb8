// src/runtime/memory.cc: aligned allocation with a running count and a high-water mark.
#include "runtime/memory.h"

#include <atomic>
#include <memory>
#include <new>
#include <utility>

namespace attn::runtime {
namespace {

std::atomic<std::size_t> now_allocated{0};
std::atomic<std::size_t> most_allocated{0};

/// Stands before each block, a whole alignment wide so that the block stays aligned.
struct alignas(alignment) Header {
  std::size_t bytes;
};

struct Scratch {
  void* data = nullptr;
  std::size_t bytes = 0;
  ~Scratch() { deallocate(data); }
};

Scratch& this_scratch() {
  thread_local Scratch scratch;
  return scratch;
}

}  // namespace

void* allocate(std::size_t bytes) {
  if (bytes > SIZE_MAX - sizeof(Header)) throw std::bad_alloc();
  void* block = ::operator new(sizeof(Header) + bytes, std::align_val_t(alignment));
  Header* header = ::new (block) Header{bytes};
  const std::size_t now = now_allocated.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  std::size_t most = most_allocated.load(std::memory_order_relaxed);
  while (most < now && !most_allocated.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
  }
  return header + 1;
}

void deallocate(void* data) noexcept {
  if (!data) return;
  Header* header = static_cast<Header*>(data) - 1;
  now_allocated.fetch_sub(header->bytes, std::memory_order_relaxed);
  ::operator delete(header, std::align_val_t(alignment));
}

std::size_t allocated_bytes() noexcept { return now_allocated.load(std::memory_order_relaxed); }
std::size_t peak_bytes() noexcept { return most_allocated.load(std::memory_order_relaxed); }
void reset_peak() noexcept { most_allocated.store(allocated_bytes(), std::memory_order_relaxed); }

void* thread_scratch(std::size_t bytes) {
  Scratch& scratch = this_scratch();
  if (!scratch.data || scratch.bytes < bytes) {
    void* larger = allocate(bytes);
    deallocate(scratch.data);
    scratch.data = larger;
    scratch.bytes = bytes;
  }
  return scratch.data;
}

OwnScratch::OwnScratch() noexcept : data_(std::exchange(this_scratch().data, nullptr)), bytes_(std::exchange(this_scratch().bytes, 0)) {}
OwnScratch::~OwnScratch() {
  deallocate(this_scratch().data);
  this_scratch().data = data_;
  this_scratch().bytes = bytes_;
}

}  // namespace attn::runtime
