// src/attention/schedule/run.h: splits a planned call into tasks and computes them.
#pragma once
#include "attention/schedule/returned_weights.h"
#include "attention/score/dropout.h"
#include "attention/schedule/plan.h"

namespace attn {

/// Computes the call and writes the results to the addresses in call.problem. In it, it first sets whether K and V are
/// copied and the factor of torch's dropout; while the tasks run, the call is constant. `dropout`: torch's dropout;
/// null: none. `weights`: the returned weights; null: none. If weights are returned, a task is a query tile of one
/// head, of all heads for head_average, or 64 rows of one head for column_sums.
void run_attention(Call& call, const AttentionKernel& kernel, const DropoutTiles* dropout,
                   const ReturnedWeights* weights);

}  // namespace attn
