// src/io/safetensors_header.h: the JSON at the head of a safetensors file, checked against the file.
#pragma once
#include <attn/dims.h>
#include <attn/dtype.h>

#include "io/source.h"

#include <cstdint>
#include <map>
#include <string>
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

}  // namespace attn::io
