// src/verify/same.h: two results compared: bit by bit, or within what 16 bits can hold.
#pragma once
#include "verify/run.h"

namespace attn::cases {

/// "", or the first element whose bits differ: "output[0, 0, 1, 3] is 1.5; it must be 1.25".
std::string bits_differ(const Result& ours, const Result& expected);

/// The same for results in bf16 or f16 beside the specification's in f32: within 4 roundings of the largest, and
/// `more`; docs/numerics.md section 7 without torch's share.
std::string is_far(const Result& ours, const Result& truth, Dtype dtype, double more = 0);

/// In place of torch's share, where results are small differences of large numbers: how far each of attention's moves
/// when the operands change by a rounding to `dtype`, and with them what a pass rounds on its way (projections, and the
/// output from which the backward pass has its delta).
std::vector<double> moved_by_rounding(const Case& wide, const Inputs& in, const Results& truth, Dtype dtype);

}  // namespace attn::cases
