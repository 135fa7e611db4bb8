// src/cli/train_report.cc: drawing the bar, printing the lines, appending to the log.
#include "cli/train_report.h"

#include "cli/output.h"
#include "io/write.h"

#include <attn/error.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <span>
#include <sstream>

namespace attn::cli {
namespace {

constexpr double kRedraw = 0.1;  // seconds between two drawings of the bar

void say(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

int columns() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/// Keeps the lines of steps up to `step`; what is no such line (the half of one) goes.
void cut_log(const std::string& path, std::int64_t step) {
  std::istringstream lines(read_file(path));
  std::string kept;
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (json.is_object() && json.contains("step") && json["step"].is_number_integer() && json["step"].get<std::int64_t>() <= step) kept += line + "\n";
  }
  io::write_whole("attn train", path, {std::as_bytes(std::span(kept))});
}

}  // namespace

std::string duration(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::llround(std::max(0.0, seconds)));
  if (whole >= 3600) return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
  return whole >= 60 ? fmt::format("{}m{:02}s", whole / 60, whole % 60) : fmt::format("{}s", whole);
}

std::string count(double number) {
  if (number >= 1e6) return fmt::format("{:.2f}M", number / 1e6);
  return number >= 1e4 ? fmt::format("{:.1f}k", number / 1e3) : fmt::format("{:.0f}", number);
}

TrainReport::TrainReport(const Trainer& trainer, const std::string& log)
    : trainer_(trainer),
      first_step_(trainer.step()),
      steps_(trainer.options().steps),
      tokens_a_step_(trainer.options().batch * trainer.options().model.context),
      terminal_(::isatty(STDERR_FILENO)),
      log_path_(log) {
  if (const std::vector<double> before = trainer.validations().to_vector(); !before.empty()) validation_ = before.back();
  if (log.empty()) return;
  if (first_step_ > 0 && std::filesystem::is_regular_file(log)) cut_log(log, first_step_);
  log_.open(log, first_step_ > 0 ? std::ios::app : std::ios::trunc);
  if (!log_) throw IoError(fmt::format("--log: {}: {}", log, std::strerror(errno)));
}

TrainReport::~TrainReport() { close(); }

void TrainReport::close() {
  if (open_) say("\n");
  open_ = false;
}

void TrainReport::step(const TrainStep& done) {
  if (done.validation) validation_ = *done.validation;
  loss_ = done.step == first_step_ + 1 ? done.loss : loss_ + 0.1 * (done.loss - loss_);  // of about the last ten batches
  if (terminal_) draw(done);
  else if (done.validation || done.step % std::max<std::int64_t>(1, steps_ / 20) == 0) line(done);
  if (log_.is_open()) write_log(done);
}

void TrainReport::draw(const TrainStep& done) {
  const double now = seconds();
  if (now - drawn_ < kRedraw && done.step != steps_ && !done.validation) return;
  drawn_ = now;
  const double per_step = now / static_cast<double>(done.step - first_step_);
  std::string facts = fmt::format(" {}/{}  loss {:.4f}", done.step, steps_, loss_);
  if (validation_ > 0) facts += fmt::format("  validation {:.4f}", validation_);
  facts += fmt::format("  {} tokens/s  {} left", count(static_cast<double>(tokens_a_step_) / per_step), duration(per_step * static_cast<double>(steps_ - done.step)));
  const int room = columns() - static_cast<int>(facts.size()) - 3;
  std::string bar;
  if (room >= 8) {
    const int cells = std::min(room, 40), full = static_cast<int>(done.step * cells / steps_);
    bar = fmt::format("[{:=<{}}{: <{}}]", "", full, "", cells - full);
  }
  say("\r\x1b[K" + bar + facts.substr(0, static_cast<std::size_t>(std::max(1, columns() - 1))));
  open_ = true;
}

void TrainReport::line(const TrainStep& done) {
  std::string text = fmt::format("step {:>{}}/{}  loss {:.4f}", done.step, std::to_string(steps_).size(), steps_, loss_);
  if (done.validation) text += fmt::format("  validation {:.4f}{}", *done.validation, done.best ? " (best)" : "");
  const double per_step = seconds() / static_cast<double>(done.step - first_step_);
  say(text + fmt::format("  lr {:.2e}  {} tokens/s  {} left\n", done.lr, count(static_cast<double>(tokens_a_step_) / per_step),
                         duration(per_step * static_cast<double>(steps_ - done.step))));
}

void TrainReport::write_log(const TrainStep& done) {
  nlohmann::ordered_json json{{"step", done.step}, {"loss", done.loss}, {"lr", done.lr}, {"gradient_norm", done.gradient_norm}};
  if (done.validation) json["validation"] = *done.validation, json["best"] = done.best;
  json["tokens"] = done.step * tokens_a_step_;
  json["seconds"] = std::round(seconds() * 1e3) / 1e3;
  log_ << json.dump() << std::endl;
  if (!log_) throw IoError(fmt::format("--log: {}: {}", log_path_, std::strerror(errno)));
}

}  // namespace attn::cli
