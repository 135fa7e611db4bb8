// src/runtime/thread_scratch.h: declares scratch memory that a thread keeps between calls.
#pragma once
#include <cstddef>

namespace attn::runtime {

/// Returns at least `bytes` of this thread's own scratch memory, 64-byte aligned. The content is undefined. The memory
/// grows and never shrinks. A later call on the same thread may return the same memory.
void* thread_scratch(std::size_t bytes);

/// Gives this thread other scratch memory while the object lives: for a user's callback, which may call this library
/// and would overwrite scratch memory that the outer call still uses.
class OwnScratch {
 public:
  OwnScratch() noexcept;
  ~OwnScratch();
  OwnScratch(const OwnScratch&) = delete;
  OwnScratch& operator=(const OwnScratch&) = delete;

 private:
  void* data_;
  std::size_t bytes_;
};

}  // namespace attn::runtime
