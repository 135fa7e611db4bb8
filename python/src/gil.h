// python/src/gil.h: releases and takes the GIL (Python's global interpreter lock), also while the interpreter ends;
// looks for signals in a call without it.
#pragma once
#include <nanobind/nanobind.h>

#include <chrono>
#include <thread>

namespace attn::python {

/// Runs `take`, which takes the GIL. Before Python 3.14, a daemon thread that waits for the GIL while the interpreter
/// ends is ended by pthread_exit. Its unwinding would reach noexcept functions and abort the process, so the thread
/// sleeps instead until the process ends.
template <typename F>
auto taken_or_asleep(F take) noexcept {
  try {
    return take();
  } catch (...) {
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
  }
}

/// Releases the GIL while the object lives.
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

/// Holds the GIL while the object lives, on any thread.
class Locked {
 public:
  Locked() : state_(taken_or_asleep([] { return PyGILState_Ensure(); })) {}
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  ~Locked() { PyGILState_Release(state_); }

 private:
  PyGILState_STATE state_;
};

/// Checks for signals such as Ctrl-C, at most every 50 ms, because taking the GIL may take long.
class Interrupts {
 public:
  void operator()() {
    using Clock = std::chrono::steady_clock;
    if (Clock::now() < next_) return;
    {
      const Locked locked;
      if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
    }
    next_ = Clock::now() + std::chrono::milliseconds(50);
  }

 private:
  std::chrono::steady_clock::time_point next_{};
};

}  // namespace attn::python
