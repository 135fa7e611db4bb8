// src/verify/query_tiles.h: computes attention with the query tiles of one instruction set, which need not be the one
// in use.
#pragma once
#include "attention/call/call.h"
#include "kernels/attention/dispatch.h"

namespace attn::cases {

enum class Partition { query_tiles, heads_together, splits };

/// Computes every row of the call, in the caller's thread.
void attend_by_query_tiles(const kernels::ForwardKernel& kernel, const Call& call, Partition partition);

}  // namespace attn::cases
