// src/tensor/defined.h: checks that an argument is defined. The error names the argument, which a tensor's own methods
// cannot do.
#pragma once
#include <attn/tensor.h>

namespace attn {

/// Throws ValueError "function: name is undefined" if x is undefined.
void check_defined(const char* function, const char* name, const Tensor& x);

}  // namespace attn
