// src/cli/interrupt.h: handles Ctrl-C for a program that continues after it.
#pragma once
#include <csignal>
#include <string>

namespace attn::cli {

/// During its lifetime Ctrl-C only sets a flag, however often it comes. If the parent process set it to be ignored, it
/// stays ignored.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;
  /// Returns whether Ctrl-C has come since the last clear().
  static bool come();
  static void clear();

 private:
  struct sigaction before_;
};

/// Reads lines from stdin.
class LineReader {
 public:
  enum class Got { line, interrupt, end };
  /// Waits for a line, without its line end; the last may lack it. Ctrl-C ends the waiting.
  Got next(std::string& line);

 private:
  std::string read_;  // what was read and is no whole line yet
  bool ended_ = false;
};

}  // namespace attn::cli
