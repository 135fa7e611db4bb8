// src/kernels/relative/reference.cc: chooses a build of the definition of relative products. Tests and `attn verify`
// compare with it; a call never runs it.
#include "kernels/reference_builds.h"
#include "kernels/relative/relative_product.h"

namespace attn::kernels {

ATTN_DECLARE_IN_BUILDS(RelativeReference, relative_table)

const RelativeReference& relative_reference(const Reference& build) noexcept {
  return ATTN_OF_BUILD(build, relative_table);
}

}  // namespace attn::kernels
