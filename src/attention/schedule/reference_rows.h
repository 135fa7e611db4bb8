// src/attention/schedule/reference_rows.h: computes rows of a query tile by the reference code.
#pragma once
#include "kernels/attention/query_tile.h"

namespace attn {

/// Computes the rows of the tile, and their weights if the problem has memory for them.
void reference_rows(const kernels::AttentionProblem& problem, const kernels::Task& tile, void* scratch);

}  // namespace attn
