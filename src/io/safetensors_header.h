// src/io/safetensors_header.h: reads the JSON at the start of a safetensors file and checks it against the file.
#pragma once
#include <attn/dims.h>
#include <attn/dtype.h>
#include <attn/safetensors.h>
#include <attn/tensor.h>

#include "io/source.h"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace attn::io {

struct SafetensorsEntry {
  std::string name, dtype_name;  // as in the file
  std::uint64_t dtype_at = 0;    // offset of the dtype's name in the file
  std::optional<Dtype> dtype;    // nullopt: one that attn does not have
  Dims sizes;
  std::uint64_t begin = 0;  // offset of the data in the file
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the order of their data in the file
  std::map<std::string, std::string> metadata;
};

/// Reads the header. It reports every error of the file before any data is read, except invalid values of bools, a
/// wrong checksum, and dtypes that attn does not have.
SafetensorsHeader read_safetensors_header(const Source& source);

/// Returns the entry's dtype. Throws a DtypeError if attn does not have it, a FormatError if the format does not.
Dtype held_dtype(const Source& source, const SafetensorsEntry& entry);

/// Returns the format's name of a dtype: "F32".
const char* safetensors_name(Dtype dtype);

/// The metadata entry that holds the checksum, in files that have one: 16 hexadecimal digits, XXH64 over the head
/// without this entry and over the data of each tensor. load_safetensors checks it (FormatError if it differs) and does
/// not return it, so that other tensors can be saved with the returned metadata.
inline constexpr const char* checksum_key = "attn_checksum";

/// Loads the tensors that `wanted` accepts by name; the others may have any dtype, and are read only if the file has a
/// checksum. The errors are those of load_safetensors.
Safetensors load_wanted(const Source& source, const std::function<bool(const std::string&)>& wanted);

/// Saves the tensors as save_safetensors does, with a checksum in the metadata.
void save_with_checksum(const char* function, const std::string& path,
                        const std::vector<std::pair<std::string, Tensor>>& tensors,
                        std::map<std::string, std::string> metadata);

}  // namespace attn::io
