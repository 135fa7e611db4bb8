// src/kernels/recurrent/recurrent.cc: computes linear attention with a state and the causal convolution; compiled once
// for every instruction set.
#include "kernels/recurrent/target.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/recurrent/recurrent.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/recurrent/chunk_gradient-inl.h"
#include "kernels/recurrent/convolution-inl.h"
#include "kernels/recurrent/state_rows-inl.h"
#include "kernels/reference_builds.h"
#include "kernels/targets.h"
#include "runtime/cpu.h"
#include "runtime/once.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

void forward(const ForwardRows& rows) noexcept {
  rows.element == Element::f64 ? forward_rows<double>(rows) : forward_rows<float>(rows);
}
void reverse(const ReverseRows& rows) noexcept {
  rows.element == Element::f64 ? reverse_rows<double>(rows) : reverse_rows<float>(rows);
}
void chunk_gradient(const ChunkGradient& chunk) noexcept {
  chunk.element == Element::f64 ? chunk_gradient_of<double>(chunk) : chunk_gradient_of<float>(chunk);
}
void convolve(const ConvolvedRow& row) noexcept {
  row.element == Element::f64 ? convolved<double>(row) : convolved<float>(row);
}

extern const RecurrentKernels recurrent_table;
const RecurrentKernels recurrent_table = {ATTN_TARGET_NAME, forward, reverse, chunk_gradient, convolve};

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attn::kernels {

const RecurrentKernels* recurrent_target(const char* name) noexcept {
  return find_table<RecurrentKernels>({ATTN_TABLES(recurrent_table)}, runtime::vectors_of(name));
}

const RecurrentKernels& recurrent_kernels() {
  constinit static runtime::Once<const RecurrentKernels*> chosen;
  return *chosen.get([] {
    const RecurrentKernels* target = recurrent_target(runtime::target().c_str());
    return target != nullptr ? target : &recurrent_reference(reference());
  });
}

ATTN_DECLARE_IN_BUILDS(RecurrentKernels, recurrent_kernels)

const RecurrentKernels& recurrent_reference(const Reference& build) noexcept {
  return ATTN_OF_BUILD(build, recurrent_kernels);
}

}  // namespace attn::kernels
#endif
