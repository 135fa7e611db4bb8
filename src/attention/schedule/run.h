// src/attention/schedule/run.h: a planned call, split into tasks and computed.
#pragma once
#include "attention/schedule/returned_weights.h"
#include "attention/score/dropout.h"
#include "attention/schedule/plan.h"

namespace attn {

/// Results go where the problem says, to which is added how the work is cut; weights where they are wanted, else null.
/// Each task is a query tile of one head, or of all heads if their weights are averaged.
void run_attention(Call& call, const AttentionKernel& kernel, const DropoutTiles& dropout,
                   const ReturnedWeights* weights);

}  // namespace attn
