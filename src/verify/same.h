// src/verify/same.h: compares two results bit by bit, or within the precision of 16 bits.
#pragma once
#include "verify/run.h"

namespace attn::cases {

/// Returns "", or names the first element whose bits differ: "output[0, 0, 1, 3] is 1.5; it must be 1.25".
std::string bits_differ(const Result& ours, const Result& expected);

/// Does the same for bf16 or f16 results and the f32 results of the reference code: they may differ by 4 roundings of
/// the largest value, plus `more`. This is docs/numerics.md section 7 without torch's error.
std::string is_far(const Result& ours, const Result& truth, Dtype dtype, double more = 0);

/// Returns the tolerance that replaces torch's error where results are small differences of large numbers: how far each
/// result of attention moves if the operands change by one rounding to `dtype`. The intermediate values that a pass
/// rounds (projections, and the output from which the backward pass computes delta) are changed too.
std::vector<double> moved_by_rounding(const Case& wide, const Inputs& in, const Results& truth, Dtype dtype);

}  // namespace attn::cases
