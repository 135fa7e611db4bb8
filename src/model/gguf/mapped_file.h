// src/model/gguf/mapped_file.h: the bytes of a file, mapped into memory.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace attn::gguf {

/// Bytes that are mapped, or owned.
class Bytes {
 public:
  virtual ~Bytes() = default;
  std::span<const std::byte> all() const { return all_; }

 protected:
  std::span<const std::byte> all_;
};

/// Maps a file; reads it whole in builds that cannot map (WebAssembly). Errors of `function` name the path: IoError if
/// the file cannot be opened or is not a regular file.
std::unique_ptr<const Bytes> map_file(const char* function, const std::string& path);

/// Takes bytes that are in memory already.
std::unique_ptr<const Bytes> owned(std::vector<std::byte> bytes);

/// Returns whether a path names a regular file that begins as GGUF files do.
bool is_gguf(const std::string& path);

}  // namespace attn::gguf
