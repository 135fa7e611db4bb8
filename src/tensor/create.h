// src/tensor/create.h: sizes of new tensors, checked for the function that was given them.
#pragma once
#include <attn/tensor.h>

namespace attn {

/// ShapeError that names `function` for a negative size, and for more bytes than can be counted; else their number.
std::size_t checked_bytes(const char* function, const Dims& sizes, Dtype dtype);

}  // namespace attn
