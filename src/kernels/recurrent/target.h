// src/kernels/recurrent/target.h: declares the kernels of linear attention with a state for one instruction set.
#pragma once
#include "kernels/recurrence.h"

namespace attn::kernels {

/// Returns the kernels of an instruction set; null if it has none here.
const RecurrentKernels* recurrent_target(const char* name) noexcept;
/// Returns those of the target in use; the reference code where there are no vectors.
const RecurrentKernels& recurrent_kernels();

}  // namespace attn::kernels
