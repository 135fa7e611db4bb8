// src/kernels/relative/reference.cc: chooses a build of the definition of relative products. Tests and `attn verify`
// compare with it; a call never runs it.
#include "kernels/relative/relative_product.h"

namespace attn::kernels {

namespace ref_generic {
extern const RelativeReference relative_table;
}
#if defined(ATTN_HAS_REF_FMA)
namespace ref_fma {
extern const RelativeReference relative_table;
}
#endif

const RelativeReference& relative_reference([[maybe_unused]] const Reference& build) noexcept {
#if defined(ATTN_HAS_REF_FMA)
  if (&build == reference_fma()) return ref_fma::relative_table;
#endif
  return ref_generic::relative_table;
}

}  // namespace attn::kernels
