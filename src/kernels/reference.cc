// src/kernels/reference.cc: chooses the build of the reference code for this processor.
#include "kernels/reference.h"

namespace attn::kernels {

namespace ref_generic {
extern const Reference table;
}
const Reference* reference_generic() noexcept { return &ref_generic::table; }

#if defined(ATTN_HAS_REF_FMA)
namespace ref_fma {
extern const Reference table;
}
const Reference* reference_fma() noexcept { return __builtin_cpu_supports("fma") ? &ref_fma::table : nullptr; }
#else
const Reference* reference_fma() noexcept { return nullptr; }
#endif

const Reference& reference() noexcept {
  const Reference* fma = reference_fma();
  return fma != nullptr ? *fma : *reference_generic();
}

}  // namespace attn::kernels
