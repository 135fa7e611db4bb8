// include/attn/safetensors.h: named tensors in a file, in the format models are shared in.
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

/// What a safetensors file holds.
struct ATTN_API Safetensors {
  std::vector<std::pair<std::string, Tensor>> tensors;  // loaded: in the order of their data in the file
  std::map<std::string, std::string> metadata;

  /// Null when there is no tensor of that name.
  const Tensor* find(std::string_view name) const;
  /// ValueError when there is none. Of a file that ends with the statement, as in `load_safetensors(path).at("w")`: by
  /// value.
  const Tensor& at(std::string_view name) const&;
  Tensor at(std::string_view name) const&& { return at(name); }
};

/// Reads a whole file; every tensor owns its memory.
///
/// Dtypes   F64, F32, F16, BF16, I64, I32, BOOL; DtypeError names a tensor of any other.
/// Errors   IoError when the file cannot be read. FormatError with the byte offset when it is not what it says: a
///          length beyond the file, JSON that is not the format's, a name twice, sizes that do not fit, data that
///          overlap, leave holes or do not fill the file, a rank above 8, a checksum that is not that of the rest
///          (those that attn train and LanguageModel::save write have one, the metadata's attn_checksum, which is left
///          out of `metadata`). Then nothing is returned. ValueError for a path with a zero byte.
ATTN_API Safetensors load_safetensors(const std::string& path);
/// The same from memory; the bytes are copied.
ATTN_API Safetensors parse_safetensors(std::span<const std::byte> bytes);

/// Writes tensors of any strides; the same bytes as Python's safetensors writes. The file appears whole or not at all:
/// a temporary file is synced and takes its name.
///
/// Errors   ValueError for a name that is given twice, is "__metadata__" or not UTF-8, for metadata named
///          attn_checksum, and for an undefined tensor; IoError.
ATTN_API void save_safetensors(const std::string& path, const std::vector<std::pair<std::string, Tensor>>& tensors,
                               const std::map<std::string, std::string>& metadata = {});
/// The bytes that `save_safetensors` writes.
ATTN_API std::vector<std::byte> safetensors_bytes(const std::vector<std::pair<std::string, Tensor>>& tensors,
                                                  const std::map<std::string, std::string>& metadata = {});

}  // namespace attn
