// include/attn/safetensors.h: reads and writes named tensors in a safetensors file.
#pragma once
#include <attn/tensor.h>

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attn {

/// The content of a safetensors file.
struct ATTN_API Safetensors {
  std::vector<std::pair<std::string, Tensor>> tensors;  // after loading: in the order of their data in the file
  std::map<std::string, std::string> metadata;

  /// Returns null when there is no tensor of that name.
  const Tensor* find(std::string_view name) const;
  /// Throws ValueError when there is no tensor of that name. On a temporary, as in `load_safetensors(path).at("w")`, it
  /// returns by value.
  const Tensor& at(std::string_view name) const&;
  Tensor at(std::string_view name) const&& { return at(name); }
};

/// Reads a whole file; every tensor owns its memory.
///
/// Dtypes   F64, F32, F16, BF16, I64, I32, BOOL; DtypeError names a tensor of any other.
/// Errors   IoError when the file cannot be read. FormatError with the byte offset when it is not a valid safetensors
///          file: a length beyond the file, invalid JSON, a repeated name, sizes that do not match, data that overlaps,
///          leaves gaps or does not fill the file, a rank above 8, a wrong checksum (attn train and LanguageModel::save
///          write one as attn_checksum into the metadata; it is left out of `metadata`). Then nothing is returned.
///          ValueError for a path with a zero byte.
ATTN_API Safetensors load_safetensors(const std::string& path);
/// Reads the same format from memory; the bytes are copied.
ATTN_API Safetensors parse_safetensors(std::span<const std::byte> bytes);

/// Writes tensors of any strides, with the same bytes as Python's safetensors. The file is complete or absent, never
/// partial: a temporary file is synced and renamed.
///
/// Errors   ValueError for a name that is repeated, is "__metadata__" or is not UTF-8, for metadata that is not UTF-8
///          or is named attn_checksum, and for an undefined tensor; IoError.
ATTN_API void save_safetensors(const std::string& path, const std::vector<std::pair<std::string, Tensor>>& tensors,
                               const std::map<std::string, std::string>& metadata = {});
/// Returns the bytes that `save_safetensors` writes.
ATTN_API std::vector<std::byte> safetensors_bytes(const std::vector<std::pair<std::string, Tensor>>& tensors,
                                                  const std::map<std::string, std::string>& metadata = {});

}  // namespace attn
