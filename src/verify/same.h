// src/verify/same.h: two results compared: bit by bit, or within what 16 bits can hold.
#pragma once
#include "verify/run.h"

namespace attn::cases {

/// "", or the first element whose bits differ: "output[0, 0, 1, 3] is 1.5; it must be 1.25".
std::string bits_differ(const Result& ours, const Result& expected);

/// The same for results in bf16 or f16 beside the specification's in f32: within 4 eps of the largest, docs/numerics.md
/// section 7 without torch's share.
std::string is_far(const Result& ours, const Result& truth, Dtype dtype);

}  // namespace attn::cases
