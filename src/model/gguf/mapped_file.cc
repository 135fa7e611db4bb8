// src/model/gguf/mapped_file.cc: maps a file into memory, or reads it where memory cannot be mapped.
#include "model/gguf/mapped_file.h"

#include <attn/error.h>

#include "io/source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#ifndef __wasm__
#include <sys/mman.h>
#endif

#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>
#include <vector>

namespace attn::gguf {
namespace {

class Owned : public Bytes {
 public:
  explicit Owned(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) { all_ = bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

#ifndef __wasm__
class Mapped : public Bytes {
 public:
  Mapped(const std::string& name, const std::string& path, std::size_t size) {
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    void* const begin = file < 0 ? MAP_FAILED : mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
    const int error = errno;
    if (file >= 0) close(file);
    if (begin == MAP_FAILED) throw IoError(name + ": " + std::generic_category().message(error));
    all_ = {static_cast<const std::byte*>(begin), size};
  }
  ~Mapped() override { munmap(const_cast<std::byte*>(all_.data()), all_.size()); }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
};
#endif

}  // namespace

std::unique_ptr<const Bytes> copy_of(std::span<const std::byte> bytes) {
  return std::make_unique<Owned>(std::vector<std::byte>(bytes.begin(), bytes.end()));
}

std::unique_ptr<const Bytes> map_file(const char* function, const std::string& path) {
  const io::FileSource file(function, path);  // checks that it is a regular file that can be read
  const auto size = static_cast<std::size_t>(file.size());
#ifndef __wasm__
  if (size > 0) return std::make_unique<Mapped>(file.name(), path, size);
#endif
  std::vector<std::byte> bytes(size);
  file.read(0, bytes.data(), size);
  return std::make_unique<Owned>(std::move(bytes));
}

bool is_gguf(const std::string& path) {
  struct stat facts{};
  if (stat(path.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode)) return false;
  char magic[4] = {};
  std::ifstream(path, std::ios::binary).read(magic, sizeof magic);
  return std::memcmp(magic, "GGUF", sizeof magic) == 0;
}

}  // namespace attn::gguf
