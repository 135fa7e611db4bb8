// src/attention/schedule/reference_rows.h: rows of a query tile by the reference kernel.
#pragma once
#include "kernels/attention/query_tile.h"

namespace attn {

/// Rows by the reference, their weights too where the problem has a place for them.
void reference_rows(const kernels::AttentionProblem& problem, const kernels::QueryTile& tile, void* scratch);

}  // namespace attn
