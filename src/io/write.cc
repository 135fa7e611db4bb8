// src/io/write.cc: temporary file, fsync, rename, fsync of the folder.
#include "io/write.h"

#include "io/source.h"

#include <attn/error.h>
#include <dirent.h>
#include <fcntl.h>
#include "runtime/format.h"
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

/// Removes the file, while it is still locked, unless it was kept, and closes it. The reason of a failure (errno)
/// stays.
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

std::filesystem::path folder_of(const std::filesystem::path& target) {
  return target.has_parent_path() ? target.parent_path() : ".";
}

/// Locks a file as long as it is open. Only who has locked it, with a name left, gives or takes that: so nobody removes
/// what another is writing.
enum class Lock { ours, others, impossible };  // impossible: as on some network systems
Lock lock(int file) {
  if (flock(file, LOCK_EX | LOCK_NB) != 0) return errno == EWOULDBLOCK ? Lock::others : Lock::impossible;
  struct stat facts{};
  return fstat(file, &facts) == 0 && facts.st_nlink > 0 ? Lock::ours : Lock::others;
}

/// Names in the folder of `target` for a file that is not whole yet, until one is free: attempt(path) says whether it
/// took it. Moving the path away cannot fail.
template <typename Attempt>
bool with_new_name(const std::filesystem::path& target, Attempt attempt) {
  // Not from 0: a process of the same number in another container would use the same names.
  static std::atomic<unsigned> counter{std::random_device{}()};
  for (int count = 0; count < 100; ++count) {
    std::string path =
        (folder_of(target) / runtime::format(".attn-{}-{}.tmp", getpid(), counter.fetch_add(1))).string();
    if (attempt(path)) return true;
    if (errno != EEXIST) return false;
  }
  return false;
}

/// A new file beside `target`, with the permissions of the caller's umask.
bool create_beside(const std::filesystem::path& target, Temporary& temporary) {
  return with_new_name(target, [&](std::string& path) {
    temporary.file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (temporary.file < 0) return false;
    if (lock(temporary.file) != Lock::others) {
      temporary.path = std::move(path);
      return true;
    }
    close(std::exchange(temporary.file, -1));  // somebody tidies up at this moment and has removed it
    errno = EEXIST;
    return false;
  });
}

/// The same without a name, where the system has such files: of a process that is killed nothing is left.
bool create_nameless(const std::filesystem::path& target, Temporary& temporary) {
#ifdef O_TMPFILE
  temporary.file = open(folder_of(target).c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
  return temporary.file >= 0 && lock(temporary.file) != Lock::ours;  // it has no link
#else
  return false;
#endif
}

/// Gives it one; what has a name cannot be replaced in one step but by a rename.
bool give_name(const std::filesystem::path& target, Temporary& temporary) {
  const std::string own = runtime::format("/proc/self/fd/{}", temporary.file);
  return with_new_name(target, [&](std::string& path) {
    if (linkat(AT_FDCWD, own.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) != 0) return false;
    temporary.path = std::move(path);
    return true;
  });
}

bool write_pieces(int file, const std::vector<std::span<const std::byte>>& pieces) {
  for (std::span<const std::byte> left : pieces)
    while (!left.empty()) {
      const ssize_t written = write(file, left.data(), std::min<std::size_t>(left.size(), 1 << 30));
      if (written < 0 && errno == EINTR) continue;
      if (written == 0) errno = ENOSPC;  // nothing is not an answer
      if (written <= 0) return false;
      left = left.subspan(static_cast<std::size_t>(written));
    }
  return true;
}

/// Makes the new name last; folders that cannot be synced (some network systems) are left to themselves.
void sync_folder(const std::filesystem::path& target) {
  const int file = open(folder_of(target).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return;
  fsync(file);
  close(file);
}

/// `nameless` is cleared where the system has no such files.
bool replace_whole(const std::filesystem::path& target, const struct stat* old,
                   const std::vector<std::span<const std::byte>>& pieces, bool& nameless) {
  Temporary temporary;
  const bool named = !nameless;
  if (!(nameless = nameless && create_nameless(target, temporary)) && !(named && create_beside(target, temporary)))
    return false;
  if (old && fchmod(temporary.file, old->st_mode & 07777) != 0) return false;
  if (!write_pieces(temporary.file, pieces) || fsync(temporary.file) != 0) return false;
  // Some systems say only at a close that something failed; the lock of the file itself stays until it has its name.
  if (const int copy = dup(temporary.file); copy < 0 || close(copy) != 0) return false;
  if (nameless && !(nameless = give_name(target, temporary))) return false;
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
  check_path(function, path);
  struct stat facts{};
  const bool exists = stat(path.c_str(), &facts) == 0;
  bool done;
  if (exists && !S_ISREG(facts.st_mode)) {
    done = write_directly(path, pieces);
  } else {
    std::error_code no_such_file;
    std::filesystem::path target =
        exists ? std::filesystem::canonical(path, no_such_file) : std::filesystem::path(path);
    if (no_such_file) target = path;
    remove_leftovers(folder_of(target).string());
    const struct stat* old = exists ? &facts : nullptr;
    bool nameless = true;
    done = replace_whole(target, old, pieces, nameless) || (!nameless && replace_whole(target, old, pieces, nameless));
  }
  if (!done) {
    const int error = errno;
    throw IoError(runtime::format("{}: {}: {}", function, path, std::generic_category().message(error)));
  }
}

void remove_leftovers(const std::string& folder) {
  DIR* const names = opendir(folder.c_str());
  if (names == nullptr) return;
  while (const dirent* entry = readdir(names)) {
    int process = 0, end = 0;
    unsigned number = 0;
    const char* const name = entry->d_name;
    // as with_new_name names them
    if (std::sscanf(name, ".attn-%d-%u.tmp%n", &process, &number, &end) != 2 || name[end] != '\0' || end == 0) continue;
    struct stat facts{};
    const int file = openat(dirfd(names), name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) continue;
    if (fstat(file, &facts) == 0 && S_ISREG(facts.st_mode) && lock(file) == Lock::ours) unlinkat(dirfd(names), name, 0);
    close(file);
  }
  closedir(names);
}

}  // namespace attn::io
