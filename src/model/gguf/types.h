// src/model/gguf/types.h: the tensor types of GGUF files that can be read, each with its decoder.
#pragma once
#include "kernels/block_format.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace attn::gguf {

/// A tensor type: a row is a sequence of blocks of `elements` numbers in `bytes` bytes.
struct Type {
  std::uint32_t id;  // in the file
  const char* name;
  std::int64_t elements, bytes;
  kernels::BlockFormat blocks;  // none: single numbers
  /// Decodes `count` blocks into count * elements numbers.
  void (*decode)(const std::byte* blocks, std::int64_t count, float* to);
  /// Encodes a block's numbers; null for a type that is only read.
  void (*encode)(const float* numbers, std::byte* block) = nullptr;
};

/// Returns the types that can be read.
std::span<const Type> types();

/// Returns "F32, F16, ...": the names of those types.
std::string type_names();

/// Returns the name of any type of the format; "" for a number that is not a type.
std::string name_of_type(std::uint32_t id);

}  // namespace attn::gguf
