// src/io/is_file.h: whether a file is there, without an exception of the standard library.
#pragma once
#include <filesystem>
#include <system_error>

namespace attn::io {

/// Returns whether a regular file is there; false also where the path cannot be looked up: reading it says why.
inline bool is_file(const std::filesystem::path& path) {
  std::error_code unknown;
  return std::filesystem::is_regular_file(path, unknown);
}

}  // namespace attn::io
