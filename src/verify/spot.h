// src/verify/spot.h: a few rows of a large result against the specification, before anyone measures how fast it came.
#pragma once
#include "verify/run.h"

namespace attn::cases {

/// "", or what is wrong with the first, the middle or the last row of `result`, what the library made of the case.
std::string wrong_rows(const Case& c, const Inputs& in, const Tensor& result);

}  // namespace attn::cases
