// src/cli/train_folder.cc: checks and locks the folder of a training, so that nothing else is overwritten.
#include "cli/train_folder.h"

#include "cli/output.h"
#include "cli/train_report.h"

#include <attn/error.h>
#include <attn/train.h>

#include "io/write.h"

#include "runtime/format.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

namespace attn::cli {

void check_log(const std::string& path, const std::string& out, bool resume) {
  if (path.empty() || path == standard_stream) return;
  std::error_code unknown;
  const auto kind = std::filesystem::status(path, unknown).type();
  const bool fresh = kind == std::filesystem::file_type::not_found;
  const auto place = [&](const std::filesystem::path& folder) {
    return std::filesystem::weakly_canonical(std::filesystem::absolute(folder, unknown), unknown);
  };
  if (fresh && std::filesystem::is_symlink(path, unknown)) return;
  if (fresh && !std::filesystem::exists(out, unknown) && place(std::filesystem::path(path).parent_path()) == place(out))
    return;
  if (!fresh && kind != std::filesystem::file_type::regular && kind != std::filesystem::file_type::directory) return;
  if (kind == std::filesystem::file_type::regular && !resume && !may_be_log(path))
    throw ValueError(
        runtime::format("--log: {} holds something else than a training's lines; name another file", path));
  if (!std::ofstream(path, std::ios::app)) throw IoError(runtime::format("--log: {}: {}", path, std::strerror(errno)));
  if (fresh) std::filesystem::remove(path, unknown);
}

void check_free(const std::string& out) {
  std::error_code unknown;
  if (const auto found = Trainer::find(out))
    throw ValueError(
        runtime::format("{} holds a training (step {} of {}): --resume goes on with it, another --out begins anew", out,
                        found->second, found->first.steps));
  for (const char* file : {"model.safetensors", "model.safetensors.index.json", "config.json"})
    if (std::filesystem::exists(std::filesystem::path(out) / file, unknown))
      throw ValueError(
          runtime::format("{} holds a model that was not trained here ({}); another --out begins anew", out, file));
  if (std::filesystem::exists(std::filesystem::path(out) / "loss.svg", unknown))
    throw ValueError(runtime::format(
        "{} holds a picture that no training there has drawn (loss.svg); another --out begins anew", out));
}

void check_tokenizer(const std::string& out, const Tokenizer& tokenizer) {
  const std::filesystem::path path = std::filesystem::path(out) / "tokenizer.json";
  std::error_code unknown;
  if (!std::filesystem::exists(path, unknown)) return;
  const std::string ours = tokenizer.to_json();
  if (!std::filesystem::is_regular_file(path, unknown) || std::filesystem::file_size(path, unknown) != ours.size() ||
      read_file(path.string()) != ours)
    throw ValueError(runtime::format(
        "{} holds a tokenizer that is not that of this text and these options (tokenizer.json); another "
        "--out begins anew",
        out));
}

std::vector<std::filesystem::path> missing_files(const std::filesystem::path& out) {
  std::vector<std::filesystem::path> missing;
  std::error_code unknown;
  for (const char* file : {"train_state.safetensors", "model.safetensors", "config.json", "generation_config.json",
                           "tokenizer.json", "tokenizer_config.json", ""})
    if (const std::filesystem::path path = *file ? out / file : out; !std::filesystem::exists(path, unknown))
      missing.push_back(path);
  return missing;
}

void remove_all(const std::vector<std::filesystem::path>& made) {
  std::error_code unknown;
  // remove() deletes the folder only if it is empty
  for (const std::filesystem::path& path : made) std::filesystem::remove(path, unknown);
}

FolderLock::FolderLock(const std::string& folder)
    : folder_(folder), file_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (file_ < 0) return;
  const bool locked = ::flock(file_, LOCK_EX | LOCK_NB) == 0;
  if (locked) io::remove_leftovers(folder);
  if (locked || errno != EWOULDBLOCK) return;
  ::close(file_);
  throw ValueError(runtime::format("{}: another attn train is at work there", folder));
}

FolderLock::~FolderLock() {
  if (file_ >= 0) ::close(file_);
}

void FolderLock::check() const {
  struct stat own = {}, there = {};
  const bool same = file_ < 0 || (::fstat(file_, &own) == 0 && ::stat(folder_.c_str(), &there) == 0 &&
                                  own.st_ino == there.st_ino && own.st_dev == there.st_dev);
  if (!same)
    throw ValueError(runtime::format(
        "{}: the folder was removed, renamed or replaced while the training ran; it ends here", folder_));
}

}  // namespace attn::cli
