// src/io/write.cc: temporary file, fsync, rename, fsync of the folder.
#include "io/write.h"

#include <attn/error.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <random>
#include <system_error>
#include <utility>

namespace attn::io {
namespace {

/// Removes the file, while it is still locked, unless it was kept, and closes it. The reason of a failure (errno) stays.
struct Temporary {
  int file = -1;
  std::string path;
  ~Temporary() {
    const int reason = errno;
    if (!path.empty()) unlink(path.c_str());
    if (file >= 0) close(file);
    errno = reason;
  }
};

/// Locks a file as long as it is open. Only who has locked it, with a name left, gives or takes that: so nobody removes what another is writing.
enum class Lock { ours, others, impossible };  // impossible: as on some network systems
Lock lock(int file) {
  if (flock(file, LOCK_EX | LOCK_NB) != 0) return errno == EWOULDBLOCK ? Lock::others : Lock::impossible;
  struct stat facts {};
  return fstat(file, &facts) == 0 && facts.st_nlink > 0 ? Lock::ours : Lock::others;
}

/// A new file beside `target` with the permissions the caller's umask gives.
bool create_beside(const std::filesystem::path& target, Temporary& temporary) {
  // Not from 0: a process of the same number in another container would use the same names.
  static std::atomic<unsigned> counter{std::random_device{}()};
  const std::filesystem::path folder = target.has_parent_path() ? target.parent_path() : ".";
  for (int attempt = 0; attempt < 100; ++attempt) {
    const std::string path = (folder / fmt::format(".attn-{}-{}.tmp", getpid(), counter.fetch_add(1))).string();
    temporary.file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (temporary.file < 0 && errno != EEXIST) return false;
    if (temporary.file >= 0 && lock(temporary.file) != Lock::others) {
      temporary.path = path;
      return true;
    }
    if (temporary.file >= 0) close(std::exchange(temporary.file, -1));  // somebody tidies up at this moment and has removed it
  }
  errno = EEXIST;
  return false;
}

bool write_pieces(int file, const std::vector<std::span<const std::byte>>& pieces) {
  for (std::span<const std::byte> left : pieces)
    while (!left.empty()) {
      const ssize_t written = write(file, left.data(), std::min<std::size_t>(left.size(), 1 << 30));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return false;
      left = left.subspan(static_cast<std::size_t>(written));
    }
  return true;
}

/// Makes the new name last; folders that cannot be synced (some network systems) are left to themselves.
void sync_folder(const std::filesystem::path& target) {
  const std::string folder = target.has_parent_path() ? target.parent_path().string() : ".";
  const int file = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return;
  fsync(file);
  close(file);
}

bool replace_whole(const std::filesystem::path& target, const struct stat* old, const std::vector<std::span<const std::byte>>& pieces) {
  Temporary temporary;
  if (!create_beside(target, temporary)) return false;
  if (old && fchmod(temporary.file, old->st_mode & 07777) != 0) return false;
  if (!write_pieces(temporary.file, pieces) || fsync(temporary.file) != 0) return false;
  // Some systems say only at a close that something failed; the lock of the file itself stays until it has its name.
  if (const int copy = dup(temporary.file); copy < 0 || close(copy) != 0) return false;
  if (std::rename(temporary.path.c_str(), target.c_str()) != 0) return false;
  temporary.path.clear();
  sync_folder(target);
  return true;
}

bool write_directly(const std::string& path, const std::vector<std::span<const std::byte>>& pieces) {
  Temporary device;  // without a path: closed, not removed
  device.file = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  return device.file >= 0 && write_pieces(device.file, pieces);
}

}  // namespace

void write_whole(const char* function, const std::string& path, const std::vector<std::span<const std::byte>>& pieces) {
  struct stat facts {};
  const bool exists = stat(path.c_str(), &facts) == 0;
  bool done;
  if (exists && !S_ISREG(facts.st_mode)) {
    done = write_directly(path, pieces);
  } else {
    std::error_code no_such_file;
    std::filesystem::path target = exists ? std::filesystem::canonical(path, no_such_file) : std::filesystem::path(path);
    if (no_such_file) target = path;
    done = replace_whole(target, exists ? &facts : nullptr, pieces);
  }
  if (!done) {
    const int error = errno;
    throw IoError(fmt::format("{}: {}: {}", function, path, std::generic_category().message(error)));
  }
}

void remove_leftovers(const std::string& folder) {
  std::error_code unknown;
  for (const auto& entry : std::filesystem::directory_iterator(folder, unknown)) {
    int process = 0, end = 0;
    unsigned number = 0;
    const std::string name = entry.path().filename().string();
    // as create_beside names them
    if (std::sscanf(name.c_str(), ".attn-%d-%u.tmp%n", &process, &number, &end) != 2 || static_cast<std::size_t>(end) != name.size()) continue;
    Temporary left;
    left.file = open(entry.path().c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (left.file >= 0 && entry.is_regular_file(unknown) && lock(left.file) == Lock::ours) left.path = entry.path().string();
  }
}

}  // namespace attn::io
