// src/io/safetensors_header.h: reads the JSON at the start of a safetensors file and checks it against the file.
#pragma once
#include <attn/dims.h>
#include <attn/dtype.h>
#include <attn/tensor.h>

#include "io/source.h"

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace attn::io {

struct SafetensorsEntry {
  std::string name;
  Dtype dtype = Dtype::f32;
  Dims sizes;
  std::uint64_t begin = 0;  // offset of the data in the file
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the order of their data in the file
  std::map<std::string, std::string> metadata;
};

/// Reads the header. It reports every error of the file before any data is read, except invalid values of bools and a
/// wrong checksum.
SafetensorsHeader read_safetensors_header(const Source& source);

/// Returns the format's name of a dtype: "F32".
const char* safetensors_name(Dtype dtype);

/// The metadata entry that holds the checksum, in files that have one: 16 hexadecimal digits, XXH64 over the head
/// without this entry and over the data of each tensor. load_safetensors checks it (FormatError if it differs) and does
/// not return it, so that other tensors can be saved with the returned metadata.
inline constexpr const char* checksum_key = "attn_checksum";

/// Saves the tensors as save_safetensors does, with a checksum in the metadata.
void save_with_checksum(const char* function, const std::string& path,
                        const std::vector<std::pair<std::string, Tensor>>& tensors,
                        std::map<std::string, std::string> metadata);

}  // namespace attn::io
