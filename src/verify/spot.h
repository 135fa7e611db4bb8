// src/verify/spot.h: checks a few rows of a large result with the reference code, before its speed is measured.
#pragma once
#include "verify/run.h"

namespace attn::cases {

/// Returns "", or what is wrong with the first, the middle or the last row of `result`, the library's (first) result of
/// the case; of linear attention with the last head, of a convolution with the last channel.
std::string wrong_rows(const Case& c, const Inputs& in, const Tensor& result);

}  // namespace attn::cases
