// src/verify/strips.h: attention by the strips of one instruction set, whether or not it is the one in use.
#pragma once
#include "attention/check.h"
#include "kernels/attention/dispatch.h"

namespace attn::cases {

enum class Cut { strips, heads_together, splits };

/// Every row of the call, in the caller's thread.
void attend_by_strips(const kernels::ForwardKernel& strip, const Call& call, Cut cut);

}  // namespace attn::cases
