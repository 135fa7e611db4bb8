// src/kernels/recurrent/target.h: declares the kernels of linear attention with a state for one instruction set.
#pragma once
#include "kernels/recurrence.h"
#include "kernels/reference.h"

namespace attn::kernels {

/// Returns the kernels of an instruction set; null if it has none here.
const RecurrentKernels* recurrent_target(const char* name) noexcept;
/// Returns those of the target in use; the reference code where there are no vectors.
const RecurrentKernels& recurrent_kernels();

/// Returns those of a build of the reference code. They are not in its table, so that a program without linear
/// attention does not carry them.
const RecurrentKernels& recurrent_reference(const Reference& build) noexcept;

}  // namespace attn::kernels
