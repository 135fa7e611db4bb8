// src/verify/query_tiles.h: attention by the query tiles of one instruction set, whether or not it is the one in use.
#pragma once
#include "attention/call/call.h"
#include "kernels/attention/dispatch.h"

namespace attn::cases {

enum class Partition { query_tiles, heads_together, splits };

/// Every row of the call, in the caller's thread.
void attend_by_query_tiles(const kernels::ForwardKernel& kernel, const Call& call, Partition partition);

}  // namespace attn::cases
