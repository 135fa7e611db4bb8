// src/tensor/create.h: checks the sizes of a new tensor and returns its number of bytes.
#pragma once
#include <attn/tensor.h>

namespace attn {

/// Returns the number of bytes. Throws a ShapeError that names `function` for a negative size, or if the number of
/// bytes overflows.
std::size_t checked_bytes(const char* function, const Dims& sizes, Dtype dtype);

}  // namespace attn
