// src/kernels/attention/reference.cc: chooses the build of the attention reference code for this processor.
#include "kernels/attention/reference.h"

#include "kernels/attention/backward_problem.h"

namespace attn::kernels {

namespace ref_generic {
extern const AttentionReference attention_table;
extern const GradientKernel gradient_table;
extern const GradientKernel bf16_gradient_tables[2];
}
const AttentionReference* attention_reference_generic() noexcept { return &ref_generic::attention_table; }
const GradientKernel* gradient_reference_generic() noexcept { return &ref_generic::gradient_table; }
const GradientKernel* bf16_gradient_reference_generic(bool tiles) noexcept {
  return &ref_generic::bf16_gradient_tables[tiles];
}

#if defined(ATTN_HAS_REF_FMA)
namespace ref_fma {
extern const AttentionReference attention_table;
extern const GradientKernel gradient_table;
extern const GradientKernel bf16_gradient_tables[2];
}
static bool has_fma() noexcept { return __builtin_cpu_supports("fma") != 0; }
const AttentionReference* attention_reference_fma() noexcept { return has_fma() ? &ref_fma::attention_table : nullptr; }
const GradientKernel* gradient_reference_fma() noexcept { return has_fma() ? &ref_fma::gradient_table : nullptr; }
const GradientKernel* bf16_gradient_reference_fma(bool tiles) noexcept {
  return has_fma() ? &ref_fma::bf16_gradient_tables[tiles] : nullptr;
}
#else
const AttentionReference* attention_reference_fma() noexcept { return nullptr; }
const GradientKernel* gradient_reference_fma() noexcept { return nullptr; }
const GradientKernel* bf16_gradient_reference_fma(bool) noexcept { return nullptr; }
#endif

const AttentionReference& attention_reference() noexcept {
  const AttentionReference* fma = attention_reference_fma();
  return fma != nullptr ? *fma : *attention_reference_generic();
}

const GradientKernel& gradient_reference() noexcept {
  const GradientKernel* fma = gradient_reference_fma();
  return fma != nullptr ? *fma : *gradient_reference_generic();
}

}  // namespace attn::kernels
