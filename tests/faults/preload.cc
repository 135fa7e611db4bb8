// tests/faults/preload.cc: a library to be preloaded: the system's n-th call about a file fails, does half, or is the
// last of the process.
//
//   ATTN_FAULT="N KIND"    call N (from 1): ENOSPC, EIO, EINTR, ENOLCK ... its errno; short: half of a write; kill: the
//                          process ends before it; torn: half of a write, then the process ends
//   ATTN_FAULT_SYSTEM      of all calls. drip: writes take 1,000 bytes at most; named: there are no files without a
//                          name
//   ATTN_FAULT_CALLS=FILE  how many calls there were, their names beside, when the process ends by itself
// Reads count as other calls do; what goes to the standard streams does not.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

struct Fault {
  long at = -1;
  char kind[16] = "";
  const char* system = std::getenv("ATTN_FAULT_SYSTEM");
  Fault() {
    if (const char* given = std::getenv("ATTN_FAULT")) static_cast<void>(std::sscanf(given, "%ld %15s", &at, kind));
  }
  bool is(const char* name) const { return std::strcmp(kind, name) == 0; }
  bool has_system(const char* name) const { return system != nullptr && std::strcmp(system, name) == 0; }
};
const Fault& fault() {
  static const Fault one;
  return one;
}

long calls = 0;
char names[1 << 14];

struct Count {
  ~Count() {
    const char* path = std::getenv("ATTN_FAULT_CALLS");
    if (path == nullptr) return;
    if (std::FILE* file = std::fopen(path, "w")) {
      const long all = calls;
      std::fprintf(file, "%ld%s\n", all, names);
      std::fclose(file);
    }
  }
} count;

int errno_of(const Fault& f) {
  constexpr struct {
    const char* name;
    int value;
  } all[] = {{"ENOSPC", ENOSPC}, {"EIO", EIO},     {"EINTR", EINTR},   {"ENOLCK", ENOLCK},
             {"EDQUOT", EDQUOT}, {"EROFS", EROFS}, {"EMFILE", EMFILE}, {"EPERM", EPERM}};
  for (const auto& one : all)
    if (f.is(one.name)) return one.value;
  return 0;
}

/// Counts the call; true when it fails, with errno.
bool fails(const char* name) {
  ++calls;
  if (std::strlen(names) + std::strlen(name) + 2 < sizeof names) std::strcat(std::strcat(names, " "), name);
  if (calls != fault().at) return false;
  if (fault().is("kill")) static_cast<void>(::raise(SIGKILL));
  const int reason = errno_of(fault());
  if (reason != 0) errno = reason;
  return reason != 0;
}

template <typename F>
F* next(const char* name) {
  return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}

int opened(const char* name, int folder, const char* path, int flags, mode_t mode) {
  if (fails(name)) return -1;
  if (fault().has_system("named") && (flags & O_TMPFILE) == O_TMPFILE) return errno = EOPNOTSUPP, -1;
  return next<int(int, const char*, int, ...)>("openat")(folder, path, flags, mode);
}

mode_t mode_of(int flags, std::va_list& rest) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int open(const char* path, int flags, ...) {
  std::va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return opened("open", AT_FDCWD, path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  std::va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return opened("open", AT_FDCWD, path, flags, mode);
}

ssize_t write(int file, const void* data, size_t bytes) {
  using Call = ssize_t(int, const void*, size_t);
  static Call* const call = next<Call>("write");
  if (file <= STDERR_FILENO) return call(file, data, bytes);
  if (fails("write")) return -1;
  const bool now = calls == fault().at, torn = now && fault().is("torn");
  if (now && (torn || fault().is("short"))) bytes = bytes > 1 ? bytes / 2 : bytes;
  if (fault().has_system("drip") && bytes > 1000) bytes = 1000;
  const ssize_t written = call(file, data, bytes);
  if (torn) static_cast<void>(::raise(SIGKILL));
  return written;
}

#define ATTN_CALL(NAME, PARAMETERS, ARGUMENTS)               \
  int NAME PARAMETERS noexcept(noexcept(::NAME ARGUMENTS)) { \
    if (fails(#NAME)) return -1;                             \
    return next<int PARAMETERS>(#NAME) ARGUMENTS;            \
  }
ATTN_CALL(fsync, (int file), (file))
ATTN_CALL(close, (int file), (file))
ATTN_CALL(dup, (int file), (file))
ATTN_CALL(fchmod, (int file, mode_t mode), (file, mode))
ATTN_CALL(flock, (int file, int operation), (file, operation))
ATTN_CALL(mkdir, (const char* path, mode_t mode), (path, mode))
ATTN_CALL(rename, (const char* from, const char* to), (from, to))
ATTN_CALL(unlink, (const char* path), (path))
ATTN_CALL(linkat, (int a, const char* from, int b, const char* to, int flags), (a, from, b, to, flags))
#undef ATTN_CALL

}  // extern "C"
#pragma GCC visibility pop
