// src/kernels/attention/merge_totals.cc: chooses the build of the reference code that merges the sums of rows.
#include "kernels/attention/merge_totals.h"

namespace attn::kernels {

namespace ref_generic {
extern const MergeTotals merge_totals;
}
#if defined(ATTN_HAS_REF_FMA)
namespace ref_fma {
extern const MergeTotals merge_totals;
}
#endif

MergeTotals merge_totals_reference([[maybe_unused]] const Reference& build) noexcept {
#if defined(ATTN_HAS_REF_FMA)
  if (&build == reference_fma()) return ref_fma::merge_totals;
#endif
  return ref_generic::merge_totals;
}

}  // namespace attn::kernels
