// src/runtime/thread_scratch.h: scratch memory that a thread keeps between calls.
#pragma once
#include <cstddef>

namespace attn::runtime {

/// At least `bytes` of this thread's own scratch, 64-byte aligned; its content is undefined. Grows, never shrinks; a
/// later call of the same thread may hand out the same memory again.
void* thread_scratch(std::size_t bytes);

/// While it lives, this thread's scratch is another: a caller's function runs in the middle of work that uses the
/// first.
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
