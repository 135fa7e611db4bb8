// src/model/gguf/written.h: a GGUF file as it is written: keys, then tensors in one type.
#pragma once
#include <attn/tensor.h>

#include "model/gguf/metadata.h"
#include "model/gguf/types.h"

#include <cstddef>
#include <string>
#include <vector>

namespace attn::gguf {

/// Returns the types that weights can be written in: "F32", "F16", "BF16", "Q8_0", "Q4_0".
std::vector<std::string> written_types();

/// Returns the type of that name, which must be in the table.
const Type& type_of(const std::string& name);

/// Returns the first keys of a file whose matrices have the type of that name.
Metadata metadata_of(const std::string& architecture, const std::string& type);

struct Written {
  std::string name;
  Dims sizes;
  const Type* type;
  std::vector<std::byte> data;  // padded
};

/// Encodes a tensor in f32. A matrix has the wanted type if its rows are a multiple of its blocks; all else is F32.
Written written(std::string name, const Tensor& values, const Type& wanted);

/// Writes a file of version 3, whole or not at all.
void write_file(const std::string& path, const Metadata& metadata, const std::vector<Written>& tensors);

}  // namespace attn::gguf
