// src/ranks/digest.h: describes tensors in the texts that ranks compare.
#pragma once
#include <attn/tensor.h>

#include <string>
#include <string_view>

namespace attn {

/// Returns the name, the dtype, the shape and a digest of the elements: "ids i64 [1, 5] 0123456789abcdef".
std::string text_of_tensor(std::string_view name, const Tensor& x);

}  // namespace attn
