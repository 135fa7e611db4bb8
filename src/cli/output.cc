// src/cli/output.cc: writes to stdout with a check of every error, reads files, and formats text for error lines.
#include "cli/output.h"

#include <attn/error.h>

#include "explain/utf8.h"

#include <fcntl.h>
#include <unistd.h>

#include "runtime/format.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace attn::cli {
namespace {

/// Writes the whole text; returns false, with errno set, if that fails.
bool write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written == 0) errno = ENOSPC;  // a write() that writes nothing sets no errno
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

[[noreturn]] void fail(const std::string& path, const char* what) {
  throw IoError(runtime::format("{}: {}: {}", path, what, std::strerror(errno)));
}

}  // namespace

void print(std::string_view text) {
  if (write_all(STDOUT_FILENO, text)) return;
  if (errno == EPIPE) throw ReaderGone{};
  fail("stdout", "cannot write");
}

void say(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); }

void check_apart(const char* option, std::string_view file, bool json) {
  if (json && file == standard_stream)
    throw UsageError{runtime::format("{} - and --json do not go together: both write to stdout", option)};
}

std::string read_file(const std::string& path) {
  const bool standard_input = path == standard_stream;
  const int file = standard_input ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) fail(path, "cannot be read");
  std::string content;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t got = ::read(file, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      const int reason = errno;
      if (!standard_input) ::close(file);
      errno = reason;
      fail(standard_input ? "stdin" : path, "cannot be read");
    }
    if (got == 0) break;
    content.append(buffer, static_cast<std::size_t>(got));
  }
  if (!standard_input) ::close(file);
  return content;
}

std::string without_mark(std::string text) {
  constexpr std::string_view mark = "\xEF\xBB\xBF";
  if (text.starts_with(mark)) text.erase(0, mark.size());
  return text;
}

std::string one_line(std::string_view text) {
  std::string joined;
  for (const char c : text) joined += c == '\n' || c == '\t' ? ' ' : c;
  joined.erase(joined.find_last_not_of(' ') + 1);
  return explain_detail::printable(joined);
}

std::string shortened(std::string text, std::size_t most) {
  constexpr std::string_view gap = " ... ";
  if (text.size() <= most) return text;
  // returns whether the byte is inside a UTF-8 character
  const auto inside = [&](std::size_t at) { return (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80; };
  std::size_t begin = (most - gap.size()) / 2, end = text.size() - begin;
  while (begin > 0 && inside(begin)) --begin;
  while (end < text.size() && inside(end)) ++end;
  return text.replace(begin, end - begin, gap);
}

std::string counted(std::int64_t n, std::string_view what) {
  return std::to_string(n) + " " + std::string(what) + (n == 1 ? "" : "s");
}

}  // namespace attn::cli
