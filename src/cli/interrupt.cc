// src/cli/interrupt.cc: sets a flag for Ctrl-C, and reads lines of stdin until it comes.
#include "cli/interrupt.h"

#include <attn/error.h>

#include "runtime/format.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace attn::cli {
namespace {

volatile std::sig_atomic_t interrupted = 0;

}  // namespace

Interrupts::Interrupts() {
  struct sigaction ask = {};
  ask.sa_handler = [](int) { interrupted = 1; };  // without SA_RESTART: a read() that waits for a line returns
  ::sigaction(SIGINT, nullptr, &before_);
  if (before_.sa_handler != SIG_IGN) ::sigaction(SIGINT, &ask, nullptr);
}

Interrupts::~Interrupts() { ::sigaction(SIGINT, &before_, nullptr); }

bool Interrupts::come() { return interrupted != 0; }

void Interrupts::clear() { interrupted = 0; }

LineReader::Got LineReader::next(std::string& line) {
  for (std::size_t end; (end = read_.find('\n')) == std::string::npos;) {
    if (ended_) {
      line = std::exchange(read_, "");
      return line.empty() ? Got::end : Got::line;
    }
    if (interrupted != 0) return Got::interrupt;
    char buffer[4096];
    const ssize_t got = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw IoError(runtime::format("stdin: cannot be read: {}", std::strerror(errno)));
    read_.append(buffer, static_cast<std::size_t>(got));
    ended_ = got == 0;
  }
  const std::size_t end = read_.find('\n');
  line = read_.substr(0, end);
  read_.erase(0, end + 1);
  return Got::line;
}

}  // namespace attn::cli
