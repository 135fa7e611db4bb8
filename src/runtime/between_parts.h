// src/runtime/between_parts.h: lets a thread do other work between the parts of its parallel calls.
#pragma once
#include <utility>

namespace attn::runtime {

#if !defined(__wasm__)

/// While it exists, this thread calls `work` after each part that it has computed. `work` must be quick, must not throw
/// and must not call parallel_for.
class BetweenParts {
 public:
  using Work = void (*)(void* context) noexcept;
  BetweenParts(Work work, void* context) : before_(std::exchange(current, Current{work, context})) {}
  ~BetweenParts() { current = before_; }
  BetweenParts(const BetweenParts&) = delete;
  BetweenParts& operator=(const BetweenParts&) = delete;

 private:
  friend void between_parts();
  struct Current {
    Work work;
    void* context;
  };
  static constinit inline thread_local Current current{nullptr, nullptr};
  Current before_;
};

inline void between_parts() {
  if (BetweenParts::current.work != nullptr) BetweenParts::current.work(BetweenParts::current.context);
}

#else  // nothing else is under way in a page

inline void between_parts() {}

#endif

}  // namespace attn::runtime
