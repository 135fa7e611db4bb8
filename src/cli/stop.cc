// src/cli/stop.cc: installs a signal handler that sets a flag and writes to a pipe.
#include "cli/stop.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace attn::cli {
namespace {

volatile std::sig_atomic_t stop_wanted = 0;
// A read that checks the flag first would miss a signal that comes between the two; the pipe keeps it.
int wake[2] = {-1, -1};

void on_signal(int) {
  const int before = errno;
  stop_wanted = 1;
  [[maybe_unused]] const ssize_t sent = ::write(wake[1], "", 1);
  errno = before;
}

}  // namespace

StopSignals::StopSignals() {
  if (wake[0] < 0 && ::pipe2(wake, O_CLOEXEC | O_NONBLOCK) != 0) wake[0] = wake[1] = -1;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART | SA_RESETHAND;
  for (std::size_t i = 0; i < signals_.size(); ++i) {
    ::sigaction(signals_[i], nullptr, &before_[i]);
    if (before_[i].sa_handler != SIG_IGN) ::sigaction(signals_[i], &action, nullptr);
  }
}

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < signals_.size(); ++i) ::sigaction(signals_[i], &before_[i], nullptr);
}

bool StopSignals::wanted() const { return stop_wanted != 0; }

int StopSignals::descriptor() const { return wake[0]; }

}  // namespace attn::cli
