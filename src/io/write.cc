// src/io/write.cc: writes a file by a temporary file, fsync, rename, and fsync of the folder.
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

/// Closes a temporary file. If `path` is still set, removes the file first, while it is locked. Keeps errno, the reason
/// of a failure.
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

/// Locks a file while it is open. Only a process that holds the lock of a file that still has a name may rename or
/// remove it, so that no process removes a file that another one is writing.
enum class Lock { ours, others, impossible };  // impossible: some network file systems have no locks
Lock lock(int file) {
  if (flock(file, LOCK_EX | LOCK_NB) != 0) return errno == EWOULDBLOCK ? Lock::others : Lock::impossible;
  struct stat facts{};
  return fstat(file, &facts) == 0 && facts.st_nlink > 0 ? Lock::ours : Lock::others;
}

/// Tries up to 100 names for a temporary file in the folder of `target`. attempt(path) returns whether it took the
/// name; it may then move from `path`. If it fails with EEXIST, the next name is tried.
template <typename Attempt>
bool with_new_name(const std::filesystem::path& target, Attempt attempt) {
  // Does not start at 0: a process with the same number in another container would use the same names.
  static std::atomic<unsigned> counter{std::random_device{}()};
  for (int count = 0; count < 100; ++count) {
    std::string path =
        (folder_of(target) / runtime::format(".attn-{}-{}.tmp", getpid(), counter.fetch_add(1))).string();
    if (attempt(path)) return true;
    if (errno != EEXIST) return false;
  }
  return false;
}

/// Creates a file in the folder of `target`, with the permissions of the caller's umask.
bool create_beside(const std::filesystem::path& target, Temporary& temporary) {
  return with_new_name(target, [&](std::string& path) {
    temporary.file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (temporary.file < 0) return false;
    if (lock(temporary.file) != Lock::others) {
      temporary.path = std::move(path);
      return true;
    }
    close(std::exchange(temporary.file, -1));  // another process takes it for a leftover and removes it
    errno = EEXIST;
    return false;
  });
}

/// Creates a file without a name, if the system has such files. If the process is killed, nothing remains.
bool create_nameless(const std::filesystem::path& target, Temporary& temporary) {
#ifdef O_TMPFILE
  temporary.file = open(folder_of(target).c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
  return temporary.file >= 0 && lock(temporary.file) != Lock::ours;  // `ours` would mean that the file has a name
#else
  return false;
#endif
}

/// Gives the file a temporary name, because only a rename can replace an existing file in one step.
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
      if (written == 0) errno = ENOSPC;  // writing 0 bytes is a failure
      if (written <= 0) return false;
      left = left.subspan(static_cast<std::size_t>(written));
    }
  return true;
}

/// Syncs the folder, so that the new name lasts. Folders that cannot be synced (some network systems) are ignored.
void sync_folder(const std::filesystem::path& target) {
  const int file = open(folder_of(target).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return;
  fsync(file);
  close(file);
}

/// Replaces the target by a complete new file, with the permissions of `old` unless it is null. Clears `nameless` if a
/// file without a name cannot be created, or cannot be given one.
bool replace_whole(const std::filesystem::path& target, const struct stat* old,
                   const std::vector<std::span<const std::byte>>& pieces, bool& nameless) {
  Temporary temporary;
  const bool named = !nameless;
  if (!(nameless = nameless && create_nameless(target, temporary)) && !(named && create_beside(target, temporary)))
    return false;
  if (old && fchmod(temporary.file, old->st_mode & 07777) != 0) return false;
  if (!write_pieces(temporary.file, pieces) || fsync(temporary.file) != 0) return false;
  // Some systems report a failure only at close. A copy of the descriptor is closed here, so that the lock stays until
  // the file has its name.
  if (const int copy = dup(temporary.file); copy < 0 || close(copy) != 0) return false;
  if (nameless && !(nameless = give_name(target, temporary))) return false;
  if (std::rename(temporary.path.c_str(), target.c_str()) != 0) return false;
  temporary.path.clear();
  sync_folder(target);
  return true;
}

bool write_directly(const std::string& path, const std::vector<std::span<const std::byte>>& pieces) {
  Temporary device;  // without a path: it is closed, not removed
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
    // the names that with_new_name makes
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
