// src/tensor/defined.h: an argument that was left out is named; a tensor's own methods can only say that there is none.
#pragma once
#include <attn/tensor.h>

namespace attn {

/// ValueError "function: name is undefined".
void check_defined(const char* function, const char* name, const Tensor& x);

}  // namespace attn
