// src/cli/train_report.h: what a training tells while it runs: a bar on a terminal, plain lines elsewhere, JSON lines
// in a file.
#pragma once
#include <attn/train.h>

#include <chrono>
#include <fstream>
#include <string>

namespace attn::cli {

/// Whether a file is empty or begins as a log of --log does.
bool may_be_log(const std::string& path);
/// "1h02m", "3m20s", "12s".
std::string duration(double seconds);
/// "812", "26.4k", "1.23M".
std::string count(double number);

class TrainReport {
 public:
  /// `log` is a path, "-" for stdout, or empty. Lines of steps after `first_step` are dropped from a log that exists:
  /// they are done again.
  TrainReport(const Trainer& trainer, const std::string& log);
  ~TrainReport();
  /// Shows the bar before the first step, which may take a while.
  void start();
  void step(const TrainStep& done);
  /// Ends the bar's line.
  void close();

 private:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(); }
  void draw(std::int64_t step);
  void line(const TrainStep& done);
  void write_log(const TrainStep& done);

  const Trainer& trainer_;
  const std::int64_t first_step_, steps_, tokens_a_step_;
  const bool terminal_;
  std::int64_t step_ = first_step_;
  int cells_ = 40;     // of the bar, at most
  bool open_ = false;  // a bar stands on the line
  double validation_ = 0, loss_ = 0, drawn_ = -1;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::string log_path_;
  std::ofstream log_;
};

}  // namespace attn::cli
