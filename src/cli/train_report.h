// src/cli/train_report.h: reports the progress of a training: a bar on a terminal, plain lines elsewhere, JSON lines in
// a file.
#pragma once
#include <attn/train.h>

#include <chrono>
#include <fstream>
#include <string>

namespace attn::cli {

/// Returns whether a file is empty or begins like a log that --log wrote.
bool may_be_log(const std::string& path);
/// Formats seconds as "1h02m", "3m20s", "12s".
std::string duration(double seconds);
/// Formats a number as "812", "26.4k", "1.23M".
std::string count(double number);

class TrainReport {
 public:
  /// `log` is a path, "-" for stdout, or empty. Lines of an existing log for steps after `first_step` (the current
  /// step) are dropped, because these steps run again.
  TrainReport(const Trainer& trainer, const std::string& log);
  ~TrainReport();
  /// Shows the bar before the first step, which may take a while.
  void start();
  void step(const TrainStep& done);
  /// Ends the line of the bar.
  void close();

 private:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(); }
  void draw(std::int64_t step);
  void line(const TrainStep& done);
  void write_log(const TrainStep& done);

  const Trainer& trainer_;
  const std::int64_t first_step_, steps_;
  const double tokens_a_step_;
  const bool terminal_;
  std::int64_t step_ = first_step_;
  int cells_ = 40;     // the most cells of the bar
  bool open_ = false;  // the line of the bar has no line end yet
  double validation_ = 0, loss_ = 0, drawn_ = -1;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::string log_path_;
  std::ofstream log_;
};

}  // namespace attn::cli
