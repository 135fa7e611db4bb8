// tests/cli/running.h: a command that runs beside its test.
#pragma once
#include "support/places.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

extern char** environ;

namespace attn::testing {

struct RunningOptions {
  /// These signals are not ignored, whatever the test's own caller ignores.
  std::vector<int> heard = {SIGINT, SIGTERM, SIGHUP};
  int input = STDIN_FILENO;
  std::string output = "/dev/null";
};

/// `attn` with these arguments beside the test; to be stopped by a signal.
class Running {
 public:
  Running(std::vector<std::string> arguments, const RunningOptions& options = {}) {
    std::string command = command_path();
    arguments.insert(arguments.begin(), command);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    if (options.input != STDIN_FILENO) posix_spawn_file_actions_adddup2(&files, options.input, STDIN_FILENO);
    posix_spawn_file_actions_addopen(&files, 1, options.output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t defaults;
    sigemptyset(&defaults);
    for (const int signal : options.heard) sigaddset(&defaults, signal);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    if (posix_spawn(&id_, command.c_str(), &files, &attributes, argv.data(), environ) != 0) std::abort();
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
  }
  /// The exit code, or minus the signal that ended it.
  int wait() {
    int status = 0;
    ::waitpid(id_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  /// Whether the command has set a handler of this signal (SigCgt of /proc/ID/status).
  bool catches(int signal) const {
    std::ifstream status("/proc/" + std::to_string(id_) + "/status");
    for (std::string line; std::getline(status, line);)
      if (line.starts_with("SigCgt:")) return std::stoull(line.substr(7), nullptr, 16) >> (signal - 1) & 1;
    return false;
  }
  int stop(int signal) {
    ::kill(id_, signal);
    return wait();
  }

 private:
  pid_t id_ = 0;
};

}  // namespace attn::testing
