// src/verify/backward.h: the gradients of a case by one kernel, in the caller's thread or the library's.
#pragma once
#include "attention/gradient.h"
#include "verify/run.h"

namespace attn::cases {

/// dq, dk, dv, dsinks and those of the bias terms. The forward pass is the library's: its bits are those of every kernel.
Results gradients_by(const GradientPlan* plan, const Inputs& in);

}  // namespace attn::cases
