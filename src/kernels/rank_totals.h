// src/kernels/rank_totals.h: merges the sums of rows over different ranges of keys, which processes (ranks) hold.
#pragma once
#include "kernels/attention/problem.h"
#include "kernels/reference.h"

namespace attn::kernels {

/// Merges `part`, the sums of adjacent rows over a split of 1,024 keys, into `total`, those over the splits before it
/// (docs/numerics.md section 3.5). Row i has max[i], sum[i] and output[i * columns ...]; `element`: f32 or f64.
using MergeTotals = void (*)(Element element, const RowTotals& total, const RowTotals& part, std::int64_t rows,
                             std::int64_t columns);

/// Returns merge_totals of a build of the reference code. It is not in kernels::Reference, so that a program without
/// ranks is not linked with it.
MergeTotals merge_totals_reference(const Reference& build) noexcept;

}  // namespace attn::kernels
