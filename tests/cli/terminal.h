// tests/cli/terminal.h: a program run on a terminal of its own, and what the terminal then shows.
#pragma once
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

extern char** environ;

namespace attn::testing {

/// A screen as wide as the terminal: carriage returns, new lines and "erase to the end of the line" as terminals have
/// them.
class Screen {
 public:
  explicit Screen(int width) : width_(width) {}
  void take(const std::string& bytes) {
    for (const char c : bytes) {
      if (!escape_.empty() || c == '\x1b') {
        escape_ += c;
        if (escape_ == "\x1b[K") lines_.back().resize(column_, ' '), escape_.clear();
        else if (escape_.size() > 2) unknown_ += escape_, escape_.clear();
      } else if (c == '\r') {
        column_ = 0;
        ++returns_;
      } else if (c == '\n') {
        lines_.emplace_back();
        column_ = 0;
      } else {
        if (column_ == static_cast<std::size_t>(width_)) lines_.emplace_back(), column_ = 0, ++wraps_;
        lines_.back().resize(std::max(lines_.back().size(), column_ + 1), ' ');
        lines_.back()[column_++] = c;
      }
    }
  }
  const std::vector<std::string>& lines() const { return lines_; }
  int wraps() const { return wraps_; }
  int returns() const { return returns_; }
  const std::string& unknown() const { return unknown_; }

 private:
  const int width_;
  std::vector<std::string> lines_{""};
  std::size_t column_ = 0;
  std::string escape_, unknown_;
  int wraps_ = 0, returns_ = 0;
};

struct Shown {
  int code;
  std::string bytes;  // all that was written
};

/// Runs a program with stdout and stderr on a new terminal of `width` columns. `watch` sees what came so far, and the
/// program's id. If something is `typed`, stdin is the terminal too.
inline Shown on_terminal(std::vector<std::string> arguments, int width,
                         const std::function<void(const std::string&, pid_t)>& watch = {},
                         const std::string& typed = "") {
  const int master = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (master < 0 || ::grantpt(master) != 0 || ::unlockpt(master) != 0) std::abort();
  const std::string name = ::ptsname(master);
  // so that the master never sees a terminal without a user before the end
  const int kept = ::open(name.c_str(), O_RDWR | O_NOCTTY);
  winsize size{};
  size.ws_col = static_cast<unsigned short>(width), size.ws_row = 24;
  ::ioctl(master, TIOCSWINSZ, &size);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  if (!typed.empty()) {
    posix_spawn_file_actions_addopen(&files, 0, name.c_str(), O_RDWR | O_NOCTTY, 0);
    if (::write(master, typed.data(), typed.size()) != static_cast<ssize_t>(typed.size())) std::abort();
  }
  for (const int descriptor : {1, 2})
    posix_spawn_file_actions_addopen(&files, descriptor, name.c_str(), O_RDWR | O_NOCTTY, 0);
  posix_spawn_file_actions_addclose(&files, master);
  posix_spawn_file_actions_addclose(&files, kept);
  posix_spawnattr_t attributes;  // Ctrl-C is not ignored, whatever the test's own caller ignores
  posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGINT);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  pid_t id = 0;
  if (::posix_spawn(&id, arguments[0].c_str(), &files, &attributes, argv.data(), environ) != 0) std::abort();
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  ::close(kept);
  Shown shown{};
  char buffer[4096];
  for (ssize_t got; (got = ::read(master, buffer, sizeof buffer)) > 0;) {
    shown.bytes.append(buffer, static_cast<std::size_t>(got));
    if (watch) watch(shown.bytes, id);
  }
  int status = 0;
  ::waitpid(id, &status, 0);
  ::close(master);
  shown.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return shown;
}

}  // namespace attn::testing
