// src/attention/schedule/vector_kernels.h: adapts the vector kernels of this processor to the list of kernels in
// plan.h.
#pragma once
#include <attn/dtype.h>

#include "attention/schedule/attention_kernel.h"

#include <vector>

namespace attn {

/// Returns the kernels of the target in use, best first; none if the target is the reference code.
std::vector<AttentionKernel> vector_kernels();

/// Returns the element type in which a cache stores int8 values with one scale per `group` elements: the one that
/// decode reads fastest for this dtype.
kernels::Element int8_form(Dtype dtype, std::int64_t dim, std::int64_t value_dim, std::int64_t group);

/// Merges the partial results of a task's splits and writes its rows; if a result is NaN, recomputes the rows.
void merge_query_tile(const kernels::ForwardKernel& forward, const kernels::AttentionProblem& problem,
                      const kernels::Task& tile, const void* partials, std::int64_t splits, void* scratch);

}  // namespace attn
