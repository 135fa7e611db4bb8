// src/ranks/spans.h: attention over a cache whose keys are dealt to the ranks in spans of 1,024.
#pragma once
#include <attn/ranks.h>

#include "model/columns.h"
#include "ranks/shared_pass.h"

namespace attn {

/// Appends to the cache of this rank the new keys of its spans, and returns the output of its heads [B, own Hq, T, Dv],
/// with the bits of attention_cached in one process. Each rank computes what all rows sum over its spans; the rank that
/// has a head merges these sums in the order of the keys. Collective; SharedColumns::join has the same ranks.
Tensor attend_over_spans(const SpanAttention& call, const SharedColumns& columns, const Ranks& ranks, SharedPass& pass);

}  // namespace attn
