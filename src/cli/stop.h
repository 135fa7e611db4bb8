// src/cli/stop.h: signals that ask the command to come to an end, instead of ending it.
#pragma once
#include <array>
#include <csignal>

namespace attn::cli {

/// While it lives, Ctrl-C, SIGTERM and SIGHUP (the terminal has gone) ask for an end; a second one ends the command as
/// usual. What whoever started the command has it ignore, as nohup does, stays ignored.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  bool wanted() const;

 private:
  static constexpr std::array signals_ = {SIGINT, SIGTERM, SIGHUP};
  std::array<struct sigaction, signals_.size()> before_;
};

}  // namespace attn::cli
