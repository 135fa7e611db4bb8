// src/kernels/attention/reference.cc: chooses the build of the attention specification that this processor runs.
#include "kernels/attention/reference.h"

namespace attn::kernels {

namespace ref_generic {
extern const AttentionReference attention_table;
}
const AttentionReference* attention_reference_generic() noexcept { return &ref_generic::attention_table; }

#if defined(ATTN_HAS_REF_FMA)
namespace ref_fma {
extern const AttentionReference attention_table;
}
const AttentionReference* attention_reference_fma() noexcept {
  static const bool has_fma = __builtin_cpu_supports("fma") != 0;
  return has_fma ? &ref_fma::attention_table : nullptr;
}
#else
const AttentionReference* attention_reference_fma() noexcept { return nullptr; }
#endif

const AttentionReference& attention_reference() noexcept {
  const AttentionReference* fma = attention_reference_fma();
  return fma != nullptr ? *fma : *attention_reference_generic();
}

}  // namespace attn::kernels
