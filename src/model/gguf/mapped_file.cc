// src/model/gguf/mapped_file.cc: maps a file into memory.
#include "model/gguf/mapped_file.h"

#include <attn/error.h>

#include "io/source.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace attn::gguf {
namespace {

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

}  // namespace

std::unique_ptr<const Bytes> map_file(const char* function, const std::string& path) {
  const io::FileSource file(function, path);  // checks that it is a regular file that can be read
  const auto size = static_cast<std::size_t>(file.size());
  if (size == 0) return owned({});  // no memory can be mapped for it
  return std::make_unique<Mapped>(file.name(), path, size);
}

}  // namespace attn::gguf
