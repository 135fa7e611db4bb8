// src/cli/stop.cc: installs a signal handler that sets a flag.
#include "cli/stop.h"

namespace attn::cli {
namespace {

volatile std::sig_atomic_t stop_wanted = 0;

}  // namespace

StopSignals::StopSignals() {
  struct sigaction ask = {};
  ask.sa_handler = [](int) { stop_wanted = 1; };
  ask.sa_flags = SA_RESTART | SA_RESETHAND;
  for (std::size_t i = 0; i < signals_.size(); ++i) {
    ::sigaction(signals_[i], nullptr, &before_[i]);
    if (before_[i].sa_handler != SIG_IGN) ::sigaction(signals_[i], &ask, nullptr);
  }
}

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < signals_.size(); ++i) ::sigaction(signals_[i], &before_[i], nullptr);
}

bool StopSignals::wanted() const { return stop_wanted != 0; }

}  // namespace attn::cli
