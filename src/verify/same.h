// src/verify/same.h: compares two results bit by bit, or within the precision of 16 bits.
#pragma once
#include "verify/run.h"

namespace attn::cases {

/// Returns "", or names the first element whose bits differ: "output[0, 0, 1, 3] is 1.5; it must be 1.25".
std::string bits_differ(const Result& ours, const Result& expected);

/// Does the same for bf16 or f16 results, compared with the f32 results of the reference code: they may differ by 4
/// rounding errors (2 eps) of the largest value, at least of the smallest normal number, plus `more`. That is half of
/// the last term of the bound in docs/numerics.md section 7; torch's error does not count.
std::string is_far(const Result& ours, const Result& truth, Dtype dtype, double more = 0);

/// Returns the tolerance that replaces torch's error where results are small differences of large numbers: how far each
/// result of attention moves if each element of the operands changes by a random fraction of up to eps of `dtype` (the
/// largest move of 8 draws). In the backward pass delta changes too, by such a fraction of sum |o dO|, because the
/// output from which it is computed is rounded as well. `wide`: the case in f32; `in`: its inputs.
std::vector<double> moved_by_rounding(const Case& wide, const Inputs& in, const Results& truth, Dtype dtype);

}  // namespace attn::cases
