// python/src/gil.h: Python's lock, given away and taken again, also while the interpreter ends.
#pragma once
#include <nanobind/nanobind.h>

#include <chrono>
#include <thread>

namespace attn::python {

/// Runs `take`. A daemon thread that waits for the lock when the interpreter ends is ended there by pthread_exit
/// (before Python 3.14), whose unwinding would meet functions that throw nothing, and abort the process: the thread
/// sleeps instead, until the process is over.
template <typename F>
auto taken_or_asleep(F take) noexcept {
  try {
    return take();
  } catch (...) {
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
  }
}

/// Without the lock, as long as it lives.
class Unlocked {
 public:
  Unlocked() : state_(PyEval_SaveThread()) {}
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;
  ~Unlocked() {
    taken_or_asleep([this] { PyEval_RestoreThread(state_); });
  }

 private:
  PyThreadState* state_;
};

/// With the lock, on any thread.
class Locked {
 public:
  Locked() : state_(taken_or_asleep([] { return PyGILState_Ensure(); })) {}
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  ~Locked() { PyGILState_Release(state_); }

 private:
  PyGILState_STATE state_;
};

}  // namespace attn::python
