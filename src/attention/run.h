// src/attention/run.h: a planned call cut into tasks and computed.
#pragma once
#include "attention/collect.h"
#include "attention/dropout.h"
#include "attention/plan.h"

namespace attn {

/// Results go where the problem says, to which is added how the work is cut; weights where they are wanted, else null.
/// One task is a strip of rows of a head, or of all heads where their weights are averaged.
void run_attention(Call& call, const AttentionKernel& kernel, const DropoutStrips& dropout, const Collected* weights);

}  // namespace attn
