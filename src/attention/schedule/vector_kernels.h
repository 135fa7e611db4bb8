// src/attention/schedule/vector_kernels.h: the vector kernels of this processor as kernels of the plan.
#pragma once
#include <attn/dtype.h>

#include "attention/schedule/attention_kernel.h"

#include <vector>

namespace attn {

/// Those of the target in use, best first; none where the target is the reference.
std::vector<AttentionKernel> vector_kernels();

/// The form in which a cache keeps int8 values, `group` of a row's elements a scale: that which decoding rows of
/// a dtype reads fastest.
kernels::Element int8_form(Dtype dtype, std::int64_t dim, std::int64_t value_dim, std::int64_t group);

/// Merges the splits' partial results of a task and writes its rows; if a result is NaN, the rows are recomputed.
void merge_query_tile(const kernels::ForwardKernel& forward, const kernels::AttentionProblem& problem,
                      const kernels::QueryTile& tile, const void* partials, std::int64_t splits, void* scratch);

}  // namespace attn
