// src/io/safetensors_header.h: the JSON at the head of a safetensors file, checked against the file.
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
  std::vector<SafetensorsEntry> entries;  // in the order of their data
  std::map<std::string, std::string> metadata;
};

/// Everything that can be wrong is found here, before any data is read (values of bools apart).
SafetensorsHeader read_safetensors_header(const Source& source);

/// The format's name of a dtype: "F32".
const char* safetensors_name(Dtype dtype);

/// The metadata's checksum of files that hold one: 16 digits, XXH64 over the head as it is without this entry and the
/// data of each tensor. load_safetensors compares it, FormatError, and leaves it out of what it returns: who saves
/// other tensors with that metadata is not held to it.
inline constexpr const char* checksum_key = "attn_checksum";

/// As save_safetensors, with a checksum.
void save_with_checksum(const char* function, const std::string& path,
                        const std::vector<std::pair<std::string, Tensor>>& tensors,
                        std::map<std::string, std::string> metadata);

}  // namespace attn::io
