// src/cli/lines.cc: reads the lines of a file or of stdin one by one.
#include "cli/lines.h"

#include "cli/output.h"

#include <attn/error.h>

#include "runtime/format.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace attn::cli {

Lines::Lines(const std::string& path)
    : name_(path == standard_stream ? "stdin" : path),
      file_(path == standard_stream ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  struct stat about = {};
  if (file_ < 0 || ::fstat(file_, &about) != 0) fail();
  if (!S_ISDIR(about.st_mode)) return;
  if (file_ != STDIN_FILENO) ::close(file_);
  errno = EISDIR;
  fail();
}

Lines::~Lines() {
  if (file_ != STDIN_FILENO) ::close(file_);
}

void Lines::fail() const { throw IoError(runtime::format("{}: {}", name_, std::strerror(errno))); }

bool Lines::fill(int stop) {
  while (!ended_) {
    pollfd ready[] = {{file_, POLLIN, 0}, {stop, POLLIN, 0}};  // a negative descriptor is never ready
    if (stop >= 0 && ::poll(ready, 2, -1) < 0 && errno == EINTR) continue;
    if (ready[1].revents != 0) return false;
    buffer_.resize(1 << 16);
    const ssize_t got = ::read(file_, buffer_.data(), buffer_.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail();
    buffer_.resize(static_cast<std::size_t>(got));
    at_ = 0;
    ended_ = got == 0;
    if (!ended_) return true;
  }
  return false;
}

bool Lines::next(std::string& line, int stop) {
  line.clear();
  for (std::size_t end; (end = buffer_.find('\n', at_)) == std::string::npos;) {
    line.append(buffer_, at_);
    buffer_.clear(), at_ = 0;
    if (fill(stop)) continue;
    if (!ended_ || line.empty()) return false;
    buffer_ = "\n";  // ends the last line
  }
  const std::size_t end = buffer_.find('\n', at_);
  line.append(buffer_, at_, end - at_);
  at_ = end + 1;
  if (line.ends_with('\r')) line.pop_back();
  if (++count_ == 1) line = without_mark(std::move(line));
  return true;
}

}  // namespace attn::cli
