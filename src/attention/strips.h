// src/attention/strips.h: the vector kernels of this processor as kernels of the plan.
#pragma once
#include "attention/plan.h"

#include <vector>

namespace attn {

/// Those of the target in use, best first; none where the target is the reference.
std::vector<AttentionKernel> strip_kernels();

/// Merges the spans' partial results of a task and writes its rows; where a result is NaN, the rows are decided again.
void merge_strip(const kernels::StripKernel& strips, const kernels::AttentionProblem& problem, const kernels::LaneMap& map, const void* partials,
                 std::int64_t spans, void* scratch);

}  // namespace attn
