// src/kernels/normal.cc: chooses the build of the random transforms for this processor.
#include "kernels/normal.h"

namespace attn::kernels {

namespace ref_generic {
extern const RandomTransforms random_transforms;
}
#if defined(ATTN_HAS_REF_FMA)
namespace ref_fma {
extern const RandomTransforms random_transforms;
}
#endif

const RandomTransforms* random_transforms_generic() noexcept { return &ref_generic::random_transforms; }

const RandomTransforms* random_transforms_fma() noexcept {
#if defined(ATTN_HAS_REF_FMA)
  if (__builtin_cpu_supports("fma")) return &ref_fma::random_transforms;
#endif
  return nullptr;
}

const RandomTransforms& random_transforms() noexcept {
  const RandomTransforms* const fma = random_transforms_fma();
  return fma ? *fma : *random_transforms_generic();
}

}  // namespace attn::kernels
