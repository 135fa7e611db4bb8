// src/runtime/memory.h: aligned memory that is counted, and scratch that a thread keeps between calls.
#pragma once
#include <cstddef>
#include <cstdint>

namespace attn::runtime {

inline constexpr std::size_t alignment = 64;
/// The next multiple of it.
constexpr std::size_t aligned(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

/// 64-byte aligned; std::bad_alloc when there is none. `bytes` 0 gives a valid pointer. `front`: room before it for
/// what goes with it, at front_of(data, front), 64-byte aligned too and not counted.
void* allocate(std::size_t bytes, std::size_t front = 0);
void deallocate(void* data) noexcept;
void* front_of(void* data, std::size_t front) noexcept;
void* behind_front(void* front_data, std::size_t front) noexcept;
/// Bytes now allocated by `allocate`, and the most there ever were since `reset_peak`.
std::size_t allocated_bytes() noexcept;
std::size_t peak_bytes() noexcept;
void reset_peak() noexcept;

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
