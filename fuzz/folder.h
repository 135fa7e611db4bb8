// fuzz/folder.h: makes a folder, in memory if there is /dev/shm, for parsers that need files.
#pragma once
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

namespace attn::fuzz {

/// One folder for each process, removed at its end.
class Folder {
 public:
  Folder() {
    const std::filesystem::path memory =
        std::filesystem::is_directory("/dev/shm") ? "/dev/shm" : std::filesystem::temp_directory_path();
    path_ = (memory / ("attn-fuzz-" + std::to_string(::getpid()))).string();
    std::filesystem::create_directory(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::string& path() const { return path_; }
  std::string write(const std::string& name, const void* data, std::size_t size) const {
    const std::string file = path_ + "/" + name;
    std::ofstream(file, std::ios::binary | std::ios::trunc)
        .write(static_cast<const char*>(data), static_cast<std::streamsize>(size));
    return file;
  }

 private:
  std::string path_;
};

}  // namespace attn::fuzz
