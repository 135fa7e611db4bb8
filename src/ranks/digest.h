// src/ranks/digest.h: describes tensors in the texts that ranks compare.
#pragma once
#include <attn/tensor.h>

#include "attention/call/call.h"

#include <string>
#include <string_view>

namespace attn {

/// Returns the name, the dtype, the shape and a digest of the elements: "ids i64 [1, 5] 0123456789abcdef".
std::string text_of_tensor(std::string_view name, const Tensor& x);

/// Returns the texts of all tensors of a call but q, k and v: ", sinks f32 [4] 0123456789abcdef, query_lengths ...".
std::string text_of_tensors(const Call& call);

}  // namespace attn
