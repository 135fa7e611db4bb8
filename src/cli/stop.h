// src/cli/stop.h: handles signals, so that the command can finish its current step before it ends.
#pragma once
#include <array>
#include <csignal>

namespace attn::cli {

/// During its lifetime, the first Ctrl-C, SIGTERM, SIGHUP (terminal closed) or SIGUSR1 (what launchers pass on, and job
/// queues send before the time is over) only sets a flag; a second one ends the command as usual. A signal that the
/// parent process set to be ignored, as nohup does, stays ignored.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  bool wanted() const;
  /// Returns a descriptor that can be read from when a signal has come: what waits for input with poll() waits for it
  /// too. It is negative if the system has none left.
  int descriptor() const;

 private:
  static constexpr std::array signals_ = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
  std::array<struct sigaction, signals_.size()> before_;
};

}  // namespace attn::cli
