// src/cli/train_folder.h: the folder of a training and its log: checks what is there, and ensures that one process
// writes it.
#pragma once
#include <attn/tokenizer.h>

#include <filesystem>
#include <string>
#include <vector>

namespace attn::cli {

/// Checks before the training begins that --log can be written. A file that is not a log is refused; with --resume its
/// lines are checked later, one by one. Three kinds of path are not opened here but later: a pipe, a new file in the
/// folder that the training will make, and a link to a file that does not exist.
void check_log(const std::string& path, const std::string& out, bool resume);

/// Throws a ValueError for a folder that holds a training, a model or a loss curve, so that none is overwritten.
void check_free(const std::string& out);

/// Throws a ValueError if the folder holds a tokenizer.json that differs from the new one.
void check_tokenizer(const std::string& out, const Tokenizer& tokenizer);

/// Returns the files of a training that do not exist yet; the folder itself comes last.
std::vector<std::filesystem::path> missing_files(const std::filesystem::path& out);

/// Removes files, and a folder if it is empty then.
void remove_all(const std::vector<std::filesystem::path>& made);

/// Locks a folder for one process, because two trainings would overwrite each other's files. The system releases the
/// lock when the process ends in any way. Where the system cannot lock a folder (some network file systems), there is
/// no protection.
class FolderLock {
 public:
  /// Throws a ValueError if another process has locked the folder.
  explicit FolderLock(const std::string& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  /// Throws a ValueError if the folder was removed, renamed or replaced: a checkpoint saved under its name would not be
  /// in the folder in which the training began.
  void check() const;

 private:
  std::string folder_;
  int file_;
};

}  // namespace attn::cli
