// src/model/gguf/bytes.cc: allocates bytes, and reads the first bytes of a file.
#include "model/gguf/mapped_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

namespace attn::gguf {
namespace {

class Owned : public Bytes {
 public:
  explicit Owned(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) { all_ = bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace

std::unique_ptr<const Bytes> owned(std::vector<std::byte> bytes) { return std::make_unique<Owned>(std::move(bytes)); }

bool is_gguf(const std::string& path) {
  struct stat facts{};
  if (stat(path.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode)) return false;
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  char magic[4] = {};
  const bool whole = read(file, magic, sizeof magic) == static_cast<ssize_t>(sizeof magic);
  close(file);
  return whole && std::memcmp(magic, "GGUF", sizeof magic) == 0;
}

}  // namespace attn::gguf
