// src/cli/train_report.cc: draws the progress bar, prints progress as lines, and appends to the log.
#include "cli/train_report.h"

#include "cli/output.h"
#include "cli/terminal.h"
#include "io/is_file.h"
#include "io/write.h"

#include <attn/error.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "runtime/format.h"
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <sstream>
#include <vector>

namespace attn::cli {
namespace {

constexpr double kRedraw = 0.1;  // minimum seconds between two drawings of the bar

int columns_of_stderr() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/// A text shown next to the bar. If there is not enough room, the text with the highest rank is dropped first.
struct Fact {
  std::string text;
  int rank;
};

/// Returns the bar and the texts as one line for a terminal of `width` columns. The last column stays free, because a
/// cursor beyond it would move to the next line. `cells`, the length of the bar, is as large as there is room for, and
/// it never grows, so that the bar's end stays in place while the numbers change.
std::string bar_line(double share, std::vector<Fact> facts, int width, int& cells) {
  constexpr int least = 8;
  const auto joined = [&] {
    std::string text;
    for (const Fact& fact : facts) text += (text.empty() ? "" : "  ") + fact.text;
    return text;
  };
  const auto by_rank = [](const Fact& a, const Fact& b) { return a.rank < b.rank; };
  while (facts.size() > 1 && static_cast<int>(joined().size()) >= width)
    facts.erase(std::max_element(facts.begin(), facts.end(), by_rank));
  const std::string text = joined();
  cells = std::min(cells, width - static_cast<int>(text.size()) - 4);
  const int full = static_cast<int>(share * cells);
  if (cells >= least) return runtime::format("[{:=<{}}{: <{}}] {}", "", full, "", cells - full, text);
  return text.substr(0, static_cast<std::size_t>(std::max(0, width - 1)));
}

bool begins_as_log(std::string_view content) {
  constexpr std::string_view begin = "{\"step\":";
  return content.substr(0, begin.size()) == begin.substr(0, content.size());
}

/// Keeps the log's lines for steps up to `step`. Drops later lines and lines that are not log lines (such as half a
/// line). A file without any log line is refused.
void cut_log(const std::string& path, std::int64_t step) {
  const std::string content = read_file(path);
  std::istringstream lines(content);
  std::string kept;
  bool ours = content.find('\n') == std::string::npos && begins_as_log(content);
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) continue;
    ours = true;
    if (json["step"].get<std::int64_t>() <= step) kept += line + "\n";
  }
  if (!ours)
    throw ValueError(
        runtime::format("--log: {} holds something else than a training's lines; name another file", path));
  io::write_whole("attn train", path, {std::as_bytes(std::span(kept))});
}

}  // namespace

bool may_be_log(const std::string& path) {
  std::string content(8, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(content.data(), static_cast<std::streamsize>(content.size()));
  content.resize(static_cast<std::size_t>(file.gcount()));
  return begins_as_log(content);
}

std::string duration(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::llround(std::max(0.0, seconds)));
  if (whole >= 3600) return runtime::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
  return whole >= 60 ? runtime::format("{}m{:02}s", whole / 60, whole % 60) : runtime::format("{}s", whole);
}

std::string count(double number) {
  if (number >= 1e6) return runtime::format("{:.2f}M", number / 1e6);
  return number >= 1e4 ? runtime::format("{:.1f}k", number / 1e3) : runtime::format("{:.0f}", number);
}

TrainReport::TrainReport(const Trainer& trainer, const std::string& log)
    : trainer_(trainer), first_step_(trainer.step()), steps_(trainer.options().steps),
      tokens_a_step_(trainer.tokens_a_step()), terminal_(can_redraw()), log_path_(log) {
  if (const std::vector<double> before = trainer.validations().to_vector(); !before.empty())
    validation_ = before.back();
  if (log.empty() || log == standard_stream) return;
  if (first_step_ > 0 && io::is_file(log)) cut_log(log, first_step_);
  log_.open(log, first_step_ > 0 ? std::ios::app : std::ios::trunc);
  if (!log_) throw IoError(runtime::format("--log: {}: {}", log, std::strerror(errno)));
}

void TrainReport::start() {
  if (terminal_) draw(first_step_);
}

TrainReport::~TrainReport() { close(); }

void TrainReport::close() {
  if (!open_) return;
  draw(step_);  // overwrites the ^C that the terminal printed
  say("\n");
  open_ = false;
}

void TrainReport::step(const TrainStep& done) {
  step_ = done.step;
  if (done.validation) validation_ = *done.validation;
  // an exponential average over about the last ten batches
  loss_ = done.step == first_step_ + 1 ? done.loss : loss_ + 0.1 * (done.loss - loss_);
  if (terminal_ && (seconds() - drawn_ >= kRedraw || done.step == steps_ || done.validation)) draw(done.step);
  else if (!terminal_ && (done.validation || done.step % std::max<std::int64_t>(1, steps_ / 20) == 0)) line(done);
  if (!log_path_.empty()) write_log(done);
}

void TrainReport::draw(std::int64_t step) {
  drawn_ = seconds();
  std::vector<Fact> facts{{runtime::format("{:>{}}/{}", step, std::to_string(steps_).size(), steps_), 0}};
  if (step > first_step_) {
    const double per_step = drawn_ / static_cast<double>(step - first_step_);
    facts.push_back({runtime::format("loss {:.4f}", loss_), 1});
    if (validation_ > 0) facts.push_back({runtime::format("validation {:.4f}", validation_), 3});
    facts.push_back({runtime::format("{} tokens/s", count(tokens_a_step_ / per_step)), 4});
    facts.push_back(
        {step == steps_ ? "in " + duration(drawn_) : duration(per_step * static_cast<double>(steps_ - step)) + " left",
         2});
  }
  const std::string bar =
      bar_line(static_cast<double>(step) / static_cast<double>(steps_), std::move(facts), columns_of_stderr(), cells_);
  say(runtime::format("\r{}\x1b[K", bar));
  open_ = true;
}

void TrainReport::line(const TrainStep& done) {
  std::string text =
      runtime::format("step {:>{}}/{}  loss {:.4f}", done.step, std::to_string(steps_).size(), steps_, loss_);
  if (done.validation) text += runtime::format("  validation {:.4f}{}", *done.validation, done.best ? " (best)" : "");
  const double per_step = seconds() / static_cast<double>(done.step - first_step_);
  say(text + runtime::format("  lr {:.2e}  {} tokens/s  {} left\n", done.lr, count(tokens_a_step_ / per_step),
                             duration(per_step * static_cast<double>(steps_ - done.step))));
}

void TrainReport::write_log(const TrainStep& done) {
  nlohmann::ordered_json json{
      {"step", done.step}, {"loss", done.loss}, {"lr", done.lr}, {"gradient_norm", done.gradient_norm}};
  if (done.validation) json["validation"] = *done.validation, json["best"] = done.best;
  json["tokens"] = std::llround(static_cast<double>(done.step) * tokens_a_step_);
  json["seconds"] = std::round(seconds() * 1e3) / 1e3;
  const std::string line = json.dump() + "\n";
  if (log_path_ == standard_stream) {
    try {
      return print(line);
    } catch (const ReaderGone&) {  // here it is an error, because the training does more than print
      throw IoError("--log: stdout: " + std::string(std::strerror(EPIPE)));
    }
  }
  log_ << line << std::flush;
  if (!log_) throw IoError(runtime::format("--log: {}: {}", log_path_, std::strerror(errno)));
}

}  // namespace attn::cli
