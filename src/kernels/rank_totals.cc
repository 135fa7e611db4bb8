// src/kernels/rank_totals.cc: chooses the build of the reference code that merges the sums of ranks.
#include "kernels/rank_totals.h"

#include "kernels/reference_builds.h"

namespace attn::kernels {

ATTN_DECLARE_IN_BUILDS(MergeTotals, merge_totals)

MergeTotals merge_totals_reference(const Reference& build) noexcept { return ATTN_OF_BUILD(build, merge_totals); }

}  // namespace attn::kernels
