// tests/runtime/regions.h: does a parallel region work here, and in a forked child?
#pragma once
#include "runtime/parallel.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

namespace attn::testing {

inline bool region_works() {
  std::atomic<int> runs{0};
  runtime::parallel_for(100, [&](std::int64_t) { ++runs; });
  return runs == 100;
}

/// Exit code of a child that runs `body`; -1 when a signal (or the alarm after 20 s) ended it.
template <typename F>
int in_fork(F body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    std::_Exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace attn::testing
