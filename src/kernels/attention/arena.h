// src/kernels/attention/arena.h: hands out parts of one scratch memory. The constructors that lay out a scratch also
// compute its size: with a null memory they only count.
#pragma once
#include <cstddef>
#include <cstdint>

namespace attn::kernels {

class Arena {
 public:
  static constexpr std::size_t alignment = 64;
  /// `memory` is aligned to `alignment`. If it is null, addresses are counted from 0 and must not be used.
  Arena(void* memory = nullptr) : next_(reinterpret_cast<std::uintptr_t>(memory)), first_(next_) {}

  /// Returns memory for `count` elements, aligned to a cache line.
  template <typename T>
  T* take(std::int64_t count) {
    auto* const taken = reinterpret_cast<T*>(next_);
    next_ += (static_cast<std::size_t>(count) * sizeof(T) + alignment - 1) / alignment * alignment;
    return taken;
  }
  /// Returns the bytes that were taken.
  std::size_t bytes() const { return next_ - first_; }

 private:
  std::uintptr_t next_, first_;
};

/// Returns the bytes that Parts take together if each is laid out by Part(arena, call...).
template <class... Parts, class... Call>
std::size_t scratch_bytes(const Call&... call) {
  Arena arena;
  (static_cast<void>(Parts(arena, call...)), ...);
  return arena.bytes();
}

}  // namespace attn::kernels
