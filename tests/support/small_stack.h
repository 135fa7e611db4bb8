// tests/support/small_stack.h: runs a call on a thread with a small stack.
#pragma once
#include "support/sanitized.h"

#include <pthread.h>

#include <cstddef>
#include <exception>
#include <functional>
#include <stdexcept>

namespace attn::testing {

/// Runs `call`; an exception that it throws reaches the caller.
inline void on_small_stack(std::function<void()> call) {
  struct Work {
    std::function<void()> call;
    std::exception_ptr error;
  } work{std::move(call), nullptr};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  // stack frames are larger under a sanitizer
  pthread_attr_setstacksize(&attributes, std::size_t{sanitized ? 1024 : 256} << 10);
  pthread_t thread;
  const int refused = pthread_create(
      &thread, &attributes,
      [](void* given) -> void* {
        auto& own = *static_cast<Work*>(given);
        try {
          own.call();
        } catch (...) { own.error = std::current_exception(); }
        return nullptr;
      },
      &work);
  pthread_attr_destroy(&attributes);
  if (refused != 0) throw std::runtime_error("no thread");
  pthread_join(thread, nullptr);
  if (work.error) std::rethrow_exception(work.error);
}

}  // namespace attn::testing
